#include "model/vision_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "io/picture_resize.h"

namespace dsa {
namespace {

constexpr int kSquare = 8;  // pixels of the chessboard; the square at the top left is white
constexpr int kWhite = 255, kGray = 180;

int padded(int pixels, int unit) { return (pixels + unit - 1) / unit * unit; }

// One row of the picture onto the canvas.
void lay_row(const uint8_t* from, int channels, int y, int width, uint8_t* to) {
  if (channels == 3) {
    memcpy(to, from, size_t(width) * 3);
    return;
  }
  for (int x = 0; x < width; ++x, from += 4, to += 3) {
    const int board = (x / kSquare + y / kSquare) % 2 ? kGray : kWhite, alpha = from[3];
    for (int c = 0; c < 3; ++c) to[c] = uint8_t((from[c] * alpha + board * (255 - alpha) + 127) / 255);
  }
}

}  // namespace

PictureShape picture_shape(const VisionConfig& config, int width, int height) {
  DSA_ASSERT(width > 0 && height > 0);
  const double w = width, h = height, side = double(config.side_limit) * config.patch;
  const double patches =
      std::max(1.0, double(width / config.patch)) * std::max(1.0, double(height / config.patch));
  const double scale = std::min({1.0, std::sqrt(config.patch_limit / patches), side / w, side / h});
  PictureShape shape;
  shape.width = int(std::min(side, std::max(1.0, std::floor(w * scale))));
  shape.height = int(std::min(side, std::max(1.0, std::floor(h * scale))));
  const int unit = config.patch * config.merge;
  shape.rows = padded(shape.height, unit) / config.patch;
  shape.columns = padded(shape.width, unit) / config.patch;
  shape.tokens = (shape.rows / config.merge) * (shape.columns / config.merge);
  return shape;
}

Result<Canvas> picture_canvas(const VisionConfig& config, const Picture& picture) {
  const PictureShape shape = picture_shape(config, picture.width(), picture.height());
  const int channels = picture.channels();
  std::vector<uint8_t> resized;
  const uint8_t* pixels = picture.pixels();
  if (shape.width != picture.width() || shape.height != picture.height()) {
    DSA_ASSIGN(resized, resize_bicubic(pixels, picture.width(), picture.height(), channels, shape.width,
                                       shape.height));
    pixels = resized.data();
  }

  Canvas canvas;
  canvas.width = shape.columns * config.patch;
  canvas.height = shape.rows * config.patch;
  const size_t bytes = size_t(canvas.width) * size_t(canvas.height) * 3;
  try {
    canvas.pixels.resize(bytes);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "no memory for a canvas of ", canvas.width, " x ", canvas.height,
                 " pixels")
        .with_room(bytes, 0);
  }
  for (int y = 0; y < shape.height; ++y)
    lay_row(pixels + size_t(y) * size_t(shape.width) * size_t(channels), channels, y, shape.width,
            canvas.pixels.data() + size_t(y) * size_t(canvas.width) * 3);
  return canvas;
}

void canvas_patches(const VisionConfig& config, const Canvas& canvas, int64_t first, int64_t count,
                    float* out) {
  float values[3][256];
  for (int c = 0; c < 3; ++c)
    for (int pixel = 0; pixel < 256; ++pixel)
      values[c][pixel] = float((pixel / 255.0 - config.mean[c]) / config.std[c]);

  const int columns = canvas.width / config.patch;
  for (int64_t i = first; i < first + count; ++i) {
    const size_t top = size_t(i / columns) * size_t(config.patch),
                 left = size_t(i % columns) * size_t(config.patch);
    for (int c = 0; c < 3; ++c)
      for (size_t y = top; y < top + size_t(config.patch); ++y) {
        const uint8_t* pixel = canvas.pixels.data() + (y * size_t(canvas.width) + left) * 3 + c;
        for (int x = 0; x < config.patch; ++x) *out++ = values[c][pixel[3 * x]];
      }
  }
}

}  // namespace dsa
