// tests/support/pictures.h: pictures made of random waves: smooth, so that a resize keeps them, and different everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "io/picture.h"
#include "tests/support/values.h"

namespace dsa::test {

inline Picture picture_of(int width, int height, const std::vector<uint8_t>& pixels) {
  const bool alpha = pixels.size() == size_t(width) * size_t(height) * 4;
  auto picture = Picture::from_pixels(
      {pixels.data(), width, height, 0, alpha ? PixelFormat::rgba8 : PixelFormat::rgb8, 0});
  if (!picture.is_ok()) throw std::runtime_error(picture.status().message());
  return std::move(picture).value();
}

inline Picture wavy_picture(int width, int height, uint64_t seed = 1) {
  Random random(seed);
  std::vector<uint8_t> pixels(size_t(width) * size_t(height) * 3);
  float slope[3][2];
  for (auto& s : slope) s[0] = random.uniform(0.02f, 0.4f), s[1] = random.uniform(0.02f, 0.4f);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        pixels[(size_t(y) * size_t(width) + size_t(x)) * 3 + size_t(c)] = uint8_t(
            127 + 100 * std::sin(slope[c][0] * float(x) + slope[c][1] * float(y)) + random.uniform(0, 28));
  return picture_of(width, height, pixels);
}

}  // namespace dsa::test
