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

PictureShape area_range_shape(const VisionConfig& config, int64_t width, int64_t height) {
  const int64_t unit = int64_t(config.patch) * config.merge;
  const auto up = [&](int64_t v) { return (v + unit - 1) / unit * unit; };
  int64_t h = up(height), w = up(width);
  if (h * w < config.area_min) {
    const double s = std::sqrt(double(config.area_min) / (double(height) * double(width)));
    h = up(int64_t(std::ceil(double(height) * s)));
    w = up(int64_t(std::ceil(double(width) * s)));
  }
  if (h * w > config.area_max) {
    h = w = unit;
    for (int64_t low = 1, high = height; low <= high;) {
      const int64_t m = (low + high) / 2, rows = up(m),
                    columns = up(std::max<int64_t>(1, width * m / height));
      if (rows * columns <= config.area_max)
        h = rows, w = columns, low = m + 1;
      else
        high = m - 1;
    }
  }
  double scale = std::min(double(h) / double(height), double(w) / double(width));
  if (height * width >= config.area_min) scale = std::min(scale, 1.0);
  const auto content = [&](int64_t side, int64_t most) {
    return int(std::clamp<int64_t>(int64_t(std::floor(double(side) * scale)), 1, most));
  };
  PictureShape shape;
  shape.width = content(width, w);
  shape.height = content(height, h);
  shape.rows = int(h / config.patch);
  shape.columns = int(w / config.patch);
  shape.tokens = int(h / unit * (w / unit));
  return shape;
}

// Red, green and blue of a picture with transparency.
Result<std::vector<uint8_t>> opaque(const Picture& picture) {
  std::vector<uint8_t> rgb;
  const size_t pixels = size_t(picture.width()) * size_t(picture.height());
  try {
    rgb.resize(pixels * 3);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "no memory for a picture of ", picture.width(), " x ", picture.height(),
                 " pixels")
        .with_room(pixels * 3, 0);
  }
  for (size_t i = 0; i < pixels; ++i) memcpy(&rgb[3 * i], picture.pixels() + 4 * i, 3);
  return rgb;
}

}  // namespace

PictureShape picture_shape(const VisionConfig& config, int width, int height) {
  DSA_ASSERT(width > 0 && height > 0);
  if (config.rule == PictureRule::area_range) return area_range_shape(config, width, height);
  const double w = width, h = height, side = double(config.side_limit) * config.patch;
  const int columns = std::max(1, width / config.patch), rows = std::max(1, height / config.patch);
  const double patches = double(columns) * rows;
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
  int channels = picture.channels();
  std::vector<uint8_t> rgb, resized;
  const uint8_t* pixels = picture.pixels();
  if (config.rule == PictureRule::area_range && channels == 4) {
    DSA_ASSIGN(rgb, opaque(picture));
    pixels = rgb.data();
    channels = 3;
  }
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
