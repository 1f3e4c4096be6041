// JPEG: the markers are walked here, the scans are decoded by stb_image.
#include <cstring>

#include "io/stb_decoder.h"

namespace dsa {

namespace {

constexpr char kName[] = "JPEG";
constexpr int kMaxScans =
    100;  // encoders write about ten; each costs a pass over all blocks, even if it is empty

bool is_restart(uint8_t marker) { return marker >= 0xd0 && marker <= 0xd7; }

// Position of the next byte that is, or is not, 0xff; the size of the file if there is none.
size_t find_marker(PictureBytes file, size_t at) {
  if (at >= file.size()) return file.size();
  const void* found = std::memchr(file.data() + at, 0xff, file.size() - at);
  return found ? size_t(static_cast<const uint8_t*>(found) - file.data()) : file.size();
}
size_t skip_fill(PictureBytes file, size_t at) {
  while (file[at] == 0xff) ++at;
  return at;
}

Status read_frame(PictureBytes segment, size_t at, PictureHeader* header, int* components) {
  if (segment[0] != 8) return unsupported_picture(kName, concat(int(segment[0]), " bits a channel"));
  header->height = segment.be16(1);
  header->width = segment.be16(3);
  *components = segment[5];
  if (header->height == 0) return unsupported_picture(kName, "a height that comes after the data");
  if (header->width == 0) return damaged_picture(kName, at, "its width is 0");
  if (*components != 1 && *components != 3 && *components != 4)
    return unsupported_picture(kName, concat(*components, " channels"));
  return Status::ok();
}

// stb_image writes what a Huffman table counts into arrays of 256.
Status check_huffman_tables(PictureBytes segment, size_t at) {
  for (size_t i = 0; i < segment.size();) {
    size_t codes = 0;
    for (size_t k = 1; k <= 16; ++k) codes += segment[i + k];
    if (codes > 256 || !segment.has(i, 17 + codes)) return damaged_picture(kName, at, "a bad Huffman table");
    i += 17 + codes;
  }
  return Status::ok();
}

Result<PictureHeader> read_header(PictureBytes file) {
  PictureHeader header;
  int components = 0, scans = 0;
  bool in_scan = false, has_exif = false, has_adobe = false;
  for (size_t at = 2;;) {
    at = skip_fill(file, find_marker(file, at));  // over padding, or over the data of a scan
    if (at >= file.size()) return cut_off_picture(kName, file);
    const uint8_t marker = file[at++];
    if (in_scan && (marker == 0 || is_restart(marker))) continue;
    in_scan = false;
    if (marker == 0xd9) break;
    if (marker < 0xc0 || is_restart(marker) || marker == 0xd8)
      return damaged_picture(kName, at - 1, "an unexpected marker");

    const size_t length = file.be16(at);
    if (!file.has(at, 2) || !file.has(at, length)) return cut_off_picture(kName, file);
    if (length < 2) return damaged_picture(kName, at, "an impossible segment length");
    const PictureBytes segment = file.part(at + 2, length - 2);
    switch (marker) {
      case 0xc0:
      case 0xc1:
      case 0xc2:
        if (components != 0) return damaged_picture(kName, at, "a second frame header");
        DSA_TRY(read_frame(segment, at, &header, &components));
        break;
      case 0xc3: return unsupported_picture(kName, "lossless coding");
      case 0xc4: DSA_TRY(check_huffman_tables(segment, at)); break;
      case 0xc5:
      case 0xc6:
      case 0xc7: return unsupported_picture(kName, "hierarchical coding");
      case 0xc9:
      case 0xca:
      case 0xcb:
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf: return unsupported_picture(kName, "arithmetic coding");
      case 0xda:
        if (components == 0) return damaged_picture(kName, at, "a scan before the frame header");
        if (++scans > kMaxScans)
          return error(Code::limit, "JPEG picture: more than ", kMaxScans, " scans")
              .with_fix(Fix::input)
              .with_room(uint64_t(scans), kMaxScans);
        in_scan = true;
        break;
      case 0xe1:
        if (has_exif || !segment.starts_with(std::string_view("Exif\0\0", 6))) break;
        has_exif = true;
        header.orientation = exif_orientation(segment.from(6));
        break;
      case 0xee:
        has_adobe |= segment.starts_with(std::string_view("Adobe\0", 6)) && segment.size() >= 12;
        break;
    }
    at += length;
  }
  if (scans == 0) return damaged_picture(kName, file.size(), "it ends without a scan");
  // Only Adobe's marker tells CMYK from YCCK, and that both are inverted.
  if (components == 4 && !has_adobe) return unsupported_picture(kName, "CMYK without Adobe's marker");
  return header;
}

Result<DecodedPicture> decode(PictureBytes file, const PictureHeader& header) {
  return decode_with_stb(kName, file, header);
}

}  // namespace

const PictureCodec kJpeg = {kName, read_header, decode};

}  // namespace dsa
