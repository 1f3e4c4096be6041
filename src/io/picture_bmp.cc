// BMP: 1, 4, 8, 16, 24 and 32 bits, not compressed, top down or bottom up.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "io/picture_codec.h"

namespace dsa {

namespace {

constexpr char kName[] = "BMP";
constexpr size_t kFileHeader = 14;  // bytes
constexpr uint32_t kCoreHeader = 12;

struct Layout {
  uint32_t width, height;
  bool top_down;
  uint32_t bits;                  // a pixel
  std::array<uint32_t, 4> masks;  // red, green, blue, alpha; from 16 bits on
  size_t palette, num_colors, color_bytes;
  size_t rows, row_bytes;  // the first one stored
};

Result<Layout> read_layout(PictureBytes file) {
  const uint32_t header = file.le32(14);
  if (!file.has(kFileHeader, 4) || !file.has(kFileHeader, header)) return cut_off_picture(kName, file);
  if (header != kCoreHeader && header != 40 && header != 52 && header != 56 && header != 64 &&
      header != 108 && header != 124)
    return unsupported_picture(kName, concat("a header of ", header, " bytes"));

  Layout layout{};
  uint32_t compression = 0, num_colors = 0;
  if (header == kCoreHeader) {
    layout.width = file.le16(18);
    layout.height = file.le16(20);
    layout.bits = file.le16(24);
  } else {
    const int64_t width = int32_t(file.le32(18)), height = int32_t(file.le32(22));
    if (width <= 0 || height == 0 || height == INT32_MIN)
      return damaged_picture(kName, 18, concat("its size is ", width, " x ", height));
    layout.width = uint32_t(width);
    layout.height = uint32_t(std::abs(height));
    layout.top_down = height < 0;
    layout.bits = file.le16(28);
    compression = file.le32(30);
    num_colors = file.le32(46);
  }
  if (layout.width == 0 || layout.height == 0) return damaged_picture(kName, 18, "a side of 0");

  constexpr uint32_t kPlain = 0, kMasks = 3, kMasksWithAlpha = 6;
  if (compression != kPlain && ((compression != kMasks && compression != kMasksWithAlpha) || header == 64))
    return unsupported_picture(kName, concat("compression ", compression));
  const bool has_masks = compression != kPlain;
  if (has_masks ? layout.bits != 16 && layout.bits != 32
                : layout.bits != 1 && layout.bits != 4 && layout.bits != 8 && layout.bits != 16 &&
                      layout.bits != 24 && layout.bits != 32)
    return damaged_picture(kName, 28, concat(layout.bits, " bits a pixel"));

  size_t at = kFileHeader + header;
  if (has_masks) {
    const size_t masks = kFileHeader + 40;  // in a longer header, or behind a short one
    const size_t num_masks = header >= 56 || compression == kMasksWithAlpha ? 4 : 3;
    for (size_t i = 0; i < num_masks; ++i) layout.masks[i] = file.le32(masks + 4 * i);
    at = std::max(at, masks + 4 * num_masks);
    if (!layout.masks[0] && !layout.masks[1] && !layout.masks[2])
      return damaged_picture(kName, masks, "no colour masks");
  } else if (layout.bits == 16) {
    layout.masks = {31u << 10, 31u << 5, 31u, 0};
  } else {
    layout.masks = {0xffu << 16, 0xffu << 8, 0xffu, 0};  // the fourth byte means nothing
  }
  if (layout.bits <= 8) {
    layout.palette = at;
    layout.color_bytes = header == kCoreHeader ? 3 : 4;
    const size_t most = size_t(1) << layout.bits;
    layout.num_colors = num_colors == 0 ? most : std::min<size_t>(num_colors, most);
    at += layout.num_colors * layout.color_bytes;
  }
  layout.rows = file.le32(10);
  layout.row_bytes = (size_t(layout.width) * layout.bits + 31) / 32 * 4;
  if (layout.rows < at) return damaged_picture(kName, 10, "its pixels begin inside its header");
  if (layout.rows > file.size() || (file.size() - layout.rows) / layout.row_bytes < layout.height) {
    // Some writers leave out the padding of the last row.
    const size_t last = (size_t(layout.width) * layout.bits + 7) / 8;
    const uint64_t before = uint64_t(layout.row_bytes) * (layout.height - 1);
    if (layout.rows > file.size() || file.size() - layout.rows < before ||
        !file.has(layout.rows + before, last))
      return cut_off_picture(kName, file);
  }
  return layout;
}

// The bits under a mask, stretched to 0..255.
uint8_t masked(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  const uint64_t most = mask >> shift, value = (pixel & mask) >> shift;
  return uint8_t((value * 255 + most / 2) / most);
}

Status expand_palette_row(PictureBytes file, const Layout& layout, size_t row, uint8_t* out) {
  for (uint32_t x = 0; x < layout.width; ++x, out += 4) {
    const size_t bit = size_t(x) * layout.bits;
    const size_t index = file[row + bit / 8] >> (8 - layout.bits - bit % 8) & ((1u << layout.bits) - 1);
    if (index >= layout.num_colors)
      return damaged_picture(kName, row + bit / 8, concat("colour ", index, " of ", layout.num_colors));
    const size_t color = layout.palette + index * layout.color_bytes;  // blue, green, red
    for (size_t c = 0; c < 3; ++c) out[c] = file[color + 2 - c];
    out[3] = 255;
  }
  return Status::ok();
}

void expand_row(PictureBytes file, const Layout& layout, size_t row, uint8_t* out) {
  const size_t pixel_bytes = layout.bits / 8;
  for (uint32_t x = 0; x < layout.width; ++x, out += 4, row += pixel_bytes) {
    const uint32_t pixel = pixel_bytes == 2   ? file.le16(row)
                           : pixel_bytes == 3 ? file.le24(row)
                                              : file.le32(row);
    for (size_t c = 0; c < 3; ++c) out[c] = masked(pixel, layout.masks[c]);
    out[3] = layout.masks[3] ? masked(pixel, layout.masks[3]) : 255;
  }
}

Result<PictureHeader> read_header(PictureBytes file) {
  DSA_ASSIGN(const Layout layout, read_layout(file));
  return PictureHeader{.width = layout.width, .height = layout.height};
}

Result<DecodedPicture> decode(PictureBytes file, const PictureHeader&) {
  DSA_ASSIGN(const Layout layout, read_layout(file));
  const size_t out_row = size_t(layout.width) * 4;
  auto pixels = std::make_shared<std::vector<uint8_t>>(out_row * layout.height);
  for (uint32_t y = 0; y < layout.height; ++y) {
    const size_t row = layout.rows + layout.row_bytes * (layout.top_down ? y : layout.height - 1 - y);
    uint8_t* out = pixels->data() + out_row * y;
    if (layout.bits <= 8) {
      DSA_TRY(expand_palette_row(file, layout, row, out));
    } else {
      expand_row(file, layout, row, out);
    }
  }
  // Writers that fill the alpha they announce with zeros do not mean an invisible picture.
  bool visible = false;
  for (size_t i = 3; i < pixels->size() && !visible; i += 4) visible = (*pixels)[i] != 0;
  if (!visible)
    for (size_t i = 3; i < pixels->size(); i += 4) (*pixels)[i] = 255;
  return DecodedPicture{{pixels, pixels->data()}, int(layout.width), int(layout.height), 4};
}

}  // namespace

const PictureCodec kBmp = {kName, read_header, decode};

}  // namespace dsa
