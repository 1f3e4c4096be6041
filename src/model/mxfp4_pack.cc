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

// E2M1, ties to even; beyond 6 saturates. A value that rounds to zero loses its sign.
int to_e2m1(float value) {
  const float m = std::abs(value);
  const int code =
      (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.f);
  return code | ((code != 0) & (value < 0) ? 8 : 0);
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

  int codes[kMxfp4Block], saturated = 0;
  float difference[kMxfp4Block];
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float x = w[i] * inverse;
    codes[i] = to_e2m1(x);
    saturated += std::abs(x) > 6.f;
    const float code = float(codes[i] & 7);
    const float level = 0.5f * code + 0.5f * std::max(code - 4, 0.f) + std::max(code - 6, 0.f);
    difference[i] = std::abs(std::abs(w[i]) - level * scale);
  }
  // Squares in units of the scale: those of small weights are no f32.
  float squares[kLanes] = {}, error_squares[kLanes] = {};
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float x = w[i] * inverse, d = difference[i] * inverse;
    squares[i % kLanes] += x * x;
    error_squares[i % kLanes] += d * d;
    error_lanes[i % kLanes] = std::max(error_lanes[i % kLanes], difference[i]);
  }
  double sum = 0, error_sum = 0;
  for (int i = 0; i < kLanes; ++i) {
    sum += double(squares[i]);
    error_sum += double(error_squares[i]);
    errors.error_max = std::max(errors.error_max, error_lanes[i]);
  }
  for (int i = 0; i < kMxfp4Block / 2; ++i) packed[i] = uint8_t(codes[2 * i] | codes[2 * i + 1] << 4);
  errors.values += kMxfp4Block;
  errors.saturated += uint64_t(saturated);
  errors.squares += sum * scale * scale;
  errors.error_squares += error_sum * scale * scale;
  return uint8_t(e + 127);
}

}  // namespace dsa
