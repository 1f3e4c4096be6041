#include "model/mxfp4_pack.h"

#include <algorithm>
#include <cmath>

namespace dsa {
namespace {

constexpr int kScaleMin = -120, kScaleMax = 120;

// The exponent of the smallest power of two that is at least `value`; 0 for zero.
int power_above(float value) {
  const uint32_t bits = f32_to_bits(value);
  if (bits == 0) return 0;
  return int(bits >> 23) - 127 + ((bits & 0x7fffffu) != 0);
}

float power_of_two(int e) { return bits_to_f32(uint32_t(e + 127) << 23); }

}  // namespace

void RoundingErrors::add(const RoundingErrors& other) {
  values += other.values;
  saturated += other.saturated;
  squares += other.squares;
  error_squares += other.error_squares;
  error_max = std::max(error_max, other.error_max);
}

double RoundingErrors::relative_rms() const { return squares > 0 ? std::sqrt(error_squares / squares) : 0; }

// Loops over arrays of the block, without branches, so that the compiler makes vectors of them.
uint8_t pack_mxfp4(const float* w, uint8_t* packed, RoundingErrors& errors) {
  constexpr int kLanes = 8;  // sums side by side
  float lanes[kLanes] = {}, error_lanes[kLanes] = {};
  for (int i = 0; i < kMxfp4Block; ++i) lanes[i % kLanes] = std::max(lanes[i % kLanes], std::abs(w[i]));
  const float largest = *std::max_element(lanes, lanes + kLanes);
  const int e = std::clamp(power_above(largest / 7), kScaleMin, kScaleMax);
  const float scale = power_of_two(e), inverse = power_of_two(-e);

  float x[kMxfp4Block], rounded[kMxfp4Block];
  for (int i = 0; i < kMxfp4Block; ++i) {
    x[i] = std::abs(w[i] * inverse);
    const float m = std::min(x[i], 6.f);
    // Added to m, it leaves steps of 0.5 below 2, of 1 below 4, of 2 above.
    const float shift = m < 2 ? 0x1p22f : m < 4 ? 0x1p23f : 0x1p24f;
    rounded[i] = (m + shift) - shift;
  }
  uint8_t codes[kMxfp4Block];
  int saturated = 0;
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float r = rounded[i];  // 0, 0.5, 1, 1.5, 2, 3, 4, 6
    const int code = int(std::min(std::min(2 * r, r + 2), 0.5f * r + 4));
    const int sign = code > 0 ? int(f32_to_bits(w[i]) >> 28 & 8) : 0;  // what rounds to zero has none
    codes[i] = uint8_t(code | sign);
    saturated += x[i] > 6.f ? 1 : 0;
  }
  // Squares in units of the scale: those of small weights are no f32.
  float squares[kLanes] = {}, error_squares[kLanes] = {};
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float d = std::abs(x[i] - rounded[i]);
    squares[i % kLanes] += x[i] * x[i];
    error_squares[i % kLanes] += d * d;
    error_lanes[i % kLanes] = std::max(error_lanes[i % kLanes], d);
  }
  double sum = 0, error_sum = 0;
  for (int i = 0; i < kLanes; ++i) {
    sum += double(squares[i]);
    error_sum += double(error_squares[i]);
    errors.error_max = std::max(errors.error_max, error_lanes[i] * scale);
  }
  for (int i = 0; i < kMxfp4Block / 2; ++i) packed[i] = uint8_t(codes[2 * i] | codes[2 * i + 1] << 4);
  errors.values += kMxfp4Block;
  errors.saturated += uint64_t(saturated);
  errors.squares += sum * scale * scale;
  errors.error_squares += error_sum * scale * scale;
  return uint8_t(e + 127);
}

}  // namespace dsa
