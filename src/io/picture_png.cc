// PNG: the chunks are walked here, with their checksums; the pixels are decoded by stb_image.
#include <array>

#include "io/stb_decoder.h"

namespace dsa {

namespace {

constexpr char kName[] = "PNG";

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t c = n;
    for (int k = 0; k < 8; ++k) c = (c & 1 ? 0xedb88320u : 0u) ^ (c >> 1);
    table[n] = c;
  }
  return table;
}

uint32_t crc32(PictureBytes bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes.size(); ++i) crc = kTable[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
  return ~crc;
}

constexpr uint32_t chunk(const char (&name)[5]) {
  return uint32_t(name[0]) << 24 | uint32_t(name[1]) << 16 | uint32_t(name[2]) << 8 | uint32_t(name[3]);
}

bool is_critical(uint32_t type) { return (type & 0x20000000u) == 0; }

Status read_ihdr(PictureBytes data, size_t at, PictureHeader* header) {
  header->width = data.be32(0);
  header->height = data.be32(4);
  if (data.size() != 13 || header->width == 0 || header->height == 0 || header->width > INT32_MAX ||
      header->height > INT32_MAX)
    return damaged_picture(kName, at, concat("its size is ", header->width, " x ", header->height));
  const int depth = data[8], color = data[9];
  const bool depth_fits = color == 0 ? depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16
                          : color == 3
                              ? depth == 1 || depth == 2 || depth == 4 || depth == 8
                              : (color == 2 || color == 4 || color == 6) && (depth == 8 || depth == 16);
  if (!depth_fits) return damaged_picture(kName, at, concat("colour type ", color, " with ", depth, " bits"));
  return Status::ok();
}

Result<PictureHeader> read_header(PictureBytes file) {
  if (!file.starts_with("\x89PNG\r\n\x1a\n")) return damaged_picture(kName, 0, "its signature is damaged");
  PictureHeader header;
  bool has_exif = false, has_data = false;
  for (size_t at = 8;;) {
    const size_t length = file.be32(at);
    const uint32_t type = file.be32(at + 4);
    if (!file.has(at, 12) || !file.has(at + 12, length)) return cut_off_picture(kName, file);
    const PictureBytes data = file.part(at + 8, length);
    if (type == chunk("CgBI")) return unsupported_picture(kName, "Apple's variant (CgBI)");
    if ((at == 8) != (type == chunk("IHDR")))
      return damaged_picture(kName, at, "its header is not the first chunk");
    if ((is_critical(type) || type == chunk("tRNS")) &&
        crc32(file.part(at + 4, length + 4)) != file.be32(at + 8 + length))
      return damaged_picture(kName, at, "a checksum does not match");

    if (type == chunk("IHDR")) {
      DSA_TRY(read_ihdr(data, at, &header));
    } else if (type == chunk("IDAT")) {
      has_data = true;
    } else if (type == chunk("eXIf") && !has_exif) {
      has_exif = true;
      header.orientation = exif_orientation(data);
    } else if (type == chunk("IEND")) {
      break;
    } else if (is_critical(type) && type != chunk("PLTE")) {
      return damaged_picture(kName, at, "a chunk that no decoder knows");
    }
    at += 12 + length;
  }
  if (!has_data) return damaged_picture(kName, file.size(), "it holds no pixels");
  return header;
}

Result<DecodedPicture> decode(PictureBytes file, const PictureHeader& header) {
  return decode_with_stb(kName, file, header);
}

}  // namespace

const PictureCodec kPng = {kName, read_header, decode};

}  // namespace dsa
