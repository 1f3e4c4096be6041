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

uint8_t pack_mxfp4(const float* w, uint8_t* packed, RoundingErrors& errors) {
  float largest = 0;
  for (int i = 0; i < kMxfp4Block; ++i) largest = std::max(largest, std::abs(w[i]));
  const int e = std::clamp(power_above(largest / 7), kScaleMin, kScaleMax);
  const float scale = power_of_two(e), inverse = power_of_two(-e);

  uint8_t codes[kMxfp4Block];
  int saturated = 0;
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float x = w[i] * inverse;
    codes[i] = f32_to_e2m1(x);
    saturated += std::abs(x) > 6.f;
  }
  double squares = 0, error_squares = 0;
  for (int i = 0; i < kMxfp4Block; ++i) {
    const float difference = w[i] - e2m1_to_f32(codes[i]) * scale;
    squares += double(w[i]) * w[i];
    error_squares += double(difference) * difference;
    errors.error_max = std::max(errors.error_max, std::abs(difference));
  }
  for (int i = 0; i < kMxfp4Block / 2; ++i) packed[i] = uint8_t(codes[2 * i] | codes[2 * i + 1] << 4);
  errors.values += kMxfp4Block;
  errors.saturated += uint64_t(saturated);
  errors.squares += squares;
  errors.error_squares += error_squares;
  return uint8_t(e + 127);
}

}  // namespace dsa
