// GIF: the first frame, on a transparent canvas.
#include <array>
#include <vector>

#include "io/picture_codec.h"

namespace dsa {

namespace {

constexpr char kName[] = "GIF";
constexpr size_t kLogicalScreen = 13;  // bytes of signature and screen descriptor, before the global palette

// Where the parts of the first frame lie.
struct Frame {
  uint32_t left, top, width, height;
  bool interlaced;
  size_t palette, num_colors;
  int transparent = -1;  // palette index
  size_t data;           // the LZW code size, then blocks of data
};

size_t palette_colors(uint8_t flags) { return flags & 0x80 ? size_t(2) << (flags & 7) : 0; }

// Position behind a chain of blocks, each after its length and the last one empty; beyond the file if it is cut off.
size_t skip_blocks(PictureBytes file, size_t at) {
  while (file[at] != 0) at += 1 + size_t(file[at]);
  return at + 1;
}

Result<Frame> find_frame(PictureBytes file) {
  if (!file.starts_with("GIF87a") && !file.starts_with("GIF89a"))
    return damaged_picture(kName, 0, "its signature is damaged");
  Frame frame{};
  frame.palette = kLogicalScreen;
  frame.num_colors = palette_colors(file[10]);
  frame.transparent = -1;
  size_t at = kLogicalScreen + 3 * frame.num_colors;
  while (file.has(at, 2) && file[at] == '!') {  // an extension
    if (file[at + 1] == 0xf9 && file[at + 2] >= 4) frame.transparent = file[at + 3] & 1 ? file[at + 6] : -1;
    at = skip_blocks(file, at + 2);
  }
  if (!file.has(at, 11)) {
    if (file[at] == ';') return damaged_picture(kName, at, "it holds no frame");
    return cut_off_picture(kName, file);
  }
  if (file[at] != ',') return damaged_picture(kName, at, "a block of no known kind");

  frame.left = file.le16(at + 1);
  frame.top = file.le16(at + 3);
  frame.width = file.le16(at + 5);
  frame.height = file.le16(at + 7);
  const uint32_t canvas_width = file.le16(6), canvas_height = file.le16(8);
  if (frame.width == 0 || frame.height == 0 || frame.left + frame.width > canvas_width ||
      frame.top + frame.height > canvas_height)
    return damaged_picture(kName, at,
                           concat("a frame of ", frame.width, " x ", frame.height, " at ", frame.left, ", ",
                                  frame.top, " on ", canvas_width, " x ", canvas_height));
  const uint8_t flags = file[at + 9];
  frame.interlaced = flags & 0x40;
  at += 10;
  if (flags & 0x80) {
    frame.palette = at;
    frame.num_colors = palette_colors(flags);
    at += 3 * frame.num_colors;
  }
  if (frame.num_colors == 0) return damaged_picture(kName, at, "it has no palette");
  frame.data = at;
  if (skip_blocks(file, at + 1) > file.size()) return cut_off_picture(kName, file);
  if (file[at] < 1 || file[at] > 8)
    return damaged_picture(kName, at, concat("an LZW code size of ", int(file[at])));
  return frame;
}

// The codes in a chain of blocks, lowest bits first.
class CodeReader {
 public:
  CodeReader(PictureBytes file, size_t at) : file_(file), at_(at) {}

  size_t position() const { return at_; }
  // -1 behind the last one.
  int next(int code_bits) {
    while (num_bits_ < code_bits) {
      if (left_ == 0) {
        left_ = file_[at_];
        if (left_ == 0) return -1;
        ++at_;
      }
      bits_ |= uint32_t(file_[at_++]) << num_bits_;
      num_bits_ += 8;
      --left_;
    }
    const int code = int(bits_ & ((1u << code_bits) - 1));
    bits_ >>= code_bits;
    num_bits_ -= code_bits;
    return code;
  }

 private:
  PictureBytes file_;
  size_t at_;
  int left_ = 0;  // bytes of the current block
  uint32_t bits_ = 0;
  int num_bits_ = 0;
};

// Writes the palette indices of the frame, or says what is wrong with its data.
Status unpack_lzw(PictureBytes file, size_t at, std::vector<uint8_t>& indices) {
  constexpr int kMaxCodes = 4096;
  struct Entry {
    uint16_t prefix, length;
    uint8_t first, last;
  };
  std::array<Entry, kMaxCodes> table;
  const int root_bits = file[at], clear = 1 << root_bits, end = clear + 1;
  for (int i = 0; i < clear; ++i) table[size_t(i)] = {0, 1, uint8_t(i), uint8_t(i)};

  CodeReader codes(file, at + 1);
  int code_bits = root_bits + 1, num_codes = end + 1, previous = -1;
  for (size_t written = 0; written < indices.size();) {
    const int code = codes.next(code_bits);
    if (code < 0 || code == end)
      return damaged_picture(kName, codes.position(),
                             concat("data for ", written, " of ", indices.size(), " pixels"));
    if (code == clear) {
      code_bits = root_bits + 1;
      num_codes = end + 1;
      previous = -1;
      continue;
    }
    if (code > num_codes || (code == num_codes && previous < 0) || (previous < 0 && code >= clear))
      return damaged_picture(kName, codes.position(), "a code before its definition");
    if (previous >= 0 && num_codes < kMaxCodes) {
      const Entry& before = table[size_t(previous)];
      const uint8_t first = code == num_codes ? before.first : table[size_t(code)].first;
      table[size_t(num_codes++)] = {uint16_t(previous), uint16_t(before.length + 1), before.first, first};
      if (num_codes == 1 << code_bits && code_bits < 12) ++code_bits;
    } else if (code == num_codes) {
      return damaged_picture(kName, codes.position(), "a code before its definition");
    }
    previous = code;

    // A code stands for a string; the table holds it from its end.
    const size_t length = table[size_t(code)].length;
    int link = code;
    for (size_t i = length; i-- > 0; link = table[size_t(link)].prefix)
      if (written + i < indices.size()) indices[written + i] = table[size_t(link)].last;
    written += length;
  }
  return Status::ok();
}

// The row of the frame that comes as number `y` of an interlaced one.
uint32_t interlaced_row(uint32_t y, uint32_t height) {
  for (const auto [begin, step] : {std::array<uint32_t, 2>{0, 8}, {4, 8}, {2, 4}, {1, 2}}) {
    const uint32_t rows = height > begin ? (height - begin + step - 1) / step : 0;
    if (y < rows) return begin + y * step;
    y -= rows;
  }
  return 0;
}

Result<PictureHeader> read_header(PictureBytes file) {
  DSA_TRY(find_frame(file).status());
  return PictureHeader{.width = file.le16(6), .height = file.le16(8)};
}

Result<DecodedPicture> decode(PictureBytes file, const PictureHeader& header) {
  DSA_ASSIGN(const Frame frame, find_frame(file));
  std::vector<uint8_t> indices(size_t(frame.width) * frame.height);
  DSA_TRY(unpack_lzw(file, frame.data, indices));

  auto canvas = std::make_shared<std::vector<uint8_t>>(size_t(header.width) * header.height * 4);
  for (uint32_t y = 0; y < frame.height; ++y) {
    const uint32_t row = frame.top + (frame.interlaced ? interlaced_row(y, frame.height) : y);
    uint8_t* out = canvas->data() + (size_t(row) * header.width + frame.left) * 4;
    for (uint32_t x = 0; x < frame.width; ++x, out += 4) {
      const size_t index = indices[size_t(y) * frame.width + x];
      if (int(index) == frame.transparent) continue;
      if (index >= frame.num_colors)
        return damaged_picture(kName, frame.data, concat("colour ", index, " of ", frame.num_colors));
      for (size_t c = 0; c < 3; ++c) out[c] = file[frame.palette + 3 * index + c];
      out[3] = 255;
    }
  }
  return DecodedPicture{{canvas, canvas->data()}, int(header.width), int(header.height), 4};
}

}  // namespace

const PictureCodec kGif = {kName, read_header, decode};

}  // namespace dsa
