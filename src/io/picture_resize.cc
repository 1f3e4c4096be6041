#include "io/picture_resize.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace dsa {

namespace {

constexpr int kWeightBits = 22;      // 32 less 8 for the pixel and 2 for what the sum overshoots
constexpr double kSupport = 2.0;     // source pixels to each side, at scale 1
constexpr double kSharpness = -0.5;  // "a" of the cubic

double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return ((kSharpness + 2) * x - (kSharpness + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kSharpness;
  return 0;
}

// For each of the n1 outputs of one row or column: the first source pixel, how many, and their weights.
struct Taps {
  std::vector<int> first, count;
  std::vector<int32_t> weights;  // [n1, width]
  int width;

  Taps(int n, int n1) : first(size_t(n1)), count(size_t(n1)) {
    const double scale = double(n) / n1, stretch = std::max(scale, 1.0), support = kSupport * stretch;
    width = int(std::ceil(support)) * 2 + 1;
    weights.resize(size_t(n1) * size_t(width));
    std::vector<double> row(static_cast<size_t>(width));
    for (int i = 0; i < n1; ++i) {
      const double center = (i + 0.5) * scale;
      const int begin = std::max(0, int(center - support + 0.5));
      const int taps = std::min(n, int(center + support + 0.5)) - begin;
      double sum = 0;
      for (int k = 0; k < taps; ++k)
        sum += row[size_t(k)] = cubic((k + begin - center + 0.5) * (1.0 / stretch));
      for (int k = 0; k < taps; ++k) {
        const double weight = (sum != 0 ? row[size_t(k)] / sum : row[size_t(k)]) * (1 << kWeightBits);
        weights[size_t(i) * size_t(width) + size_t(k)] = int32_t(weight < 0 ? weight - 0.5 : weight + 0.5);
      }
      first[size_t(i)] = begin;
      count[size_t(i)] = taps;
    }
  }
};

uint8_t rounded(int32_t sum) { return uint8_t(std::clamp(sum >> kWeightBits, 0, 255)); }

template <int kChannels>
void resize_columns(const uint8_t* src, int w, int h, const Taps& taps, int w1, uint8_t* out) {
  for (int y = 0; y < h; ++y, src += size_t(w) * kChannels)
    for (int x = 0; x < w1; ++x, out += kChannels) {
      const uint8_t* pixel = src + size_t(taps.first[size_t(x)]) * kChannels;
      const int32_t* weights = taps.weights.data() + size_t(x) * size_t(taps.width);
      int32_t sums[kChannels];
      std::fill(sums, sums + kChannels, 1 << (kWeightBits - 1));
      for (int k = 0; k < taps.count[size_t(x)]; ++k, pixel += kChannels)
        for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weights[k];
      for (int c = 0; c < kChannels; ++c) out[c] = rounded(sums[c]);
    }
}

void resize_rows(const uint8_t* src, size_t row_bytes, const Taps& taps, int h1, uint8_t* out) {
  std::vector<int32_t> sums(row_bytes);
  for (int y = 0; y < h1; ++y, out += row_bytes) {
    const uint8_t* row = src + size_t(taps.first[size_t(y)]) * row_bytes;
    const int32_t* weights = taps.weights.data() + size_t(y) * size_t(taps.width);
    std::fill(sums.begin(), sums.end(), 1 << (kWeightBits - 1));
    for (int k = 0; k < taps.count[size_t(y)]; ++k, row += row_bytes)
      for (size_t i = 0; i < row_bytes; ++i) sums[i] += row[i] * weights[k];
    for (size_t i = 0; i < row_bytes; ++i) out[i] = rounded(sums[i]);
  }
}

// a * b / 255, rounded.
uint8_t times_alpha(uint8_t a, uint8_t b) {
  const uint32_t product = uint32_t(a) * b + 128;
  return uint8_t(((product >> 8) + product) >> 8);
}

std::vector<uint8_t> multiplied_by_alpha(const uint8_t* src, size_t pixels) {
  std::vector<uint8_t> out(pixels * 4);
  for (size_t i = 0; i < pixels * 4; i += 4) {
    for (size_t c = 0; c < 3; ++c) out[i + c] = times_alpha(src[i + c], src[i + 3]);
    out[i + 3] = src[i + 3];
  }
  return out;
}

void divide_by_alpha(std::vector<uint8_t>& pixels) {
  for (size_t i = 0; i < pixels.size(); i += 4) {
    const int alpha = pixels[i + 3];
    if (alpha == 0 || alpha == 255) continue;
    for (size_t c = 0; c < 3; ++c) pixels[i + c] = uint8_t(std::min(255, 255 * pixels[i + c] / alpha));
  }
}

std::vector<uint8_t> resized(const uint8_t* src, int w, int h, int channels, int w1, int h1) {
  if (w == w1 && h == h1) return {src, src + size_t(w) * size_t(h) * size_t(channels)};
  std::vector<uint8_t> multiplied, wide, out;
  if (channels == 4) {
    multiplied = multiplied_by_alpha(src, size_t(w) * size_t(h));
    src = multiplied.data();
  }
  if (w != w1) {
    wide.resize(size_t(w1) * size_t(h) * size_t(channels));
    const Taps taps(w, w1);
    (channels == 4 ? resize_columns<4> : resize_columns<3>)(src, w, h, taps, w1, wide.data());
    src = wide.data();
  }
  if (h != h1) {
    out.resize(size_t(w1) * size_t(h1) * size_t(channels));
    resize_rows(src, size_t(w1) * size_t(channels), Taps(h, h1), h1, out.data());
  } else {
    out = std::move(wide);
  }
  if (channels == 4) divide_by_alpha(out);
  return out;
}

}  // namespace

Result<std::vector<uint8_t>> resize_bicubic(const uint8_t* src, int w, int h, int channels, int w1, int h1) {
  DSA_ASSERT(w > 0 && h > 0 && w1 > 0 && h1 > 0 && (channels == 3 || channels == 4));
  try {
    return resized(src, w, h, channels, w1, h1);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "no memory to resize a picture of ", w, " x ", h, " to ", w1, " x ", h1)
        .with_fix(Fix::free_memory);
  }
}

}  // namespace dsa
