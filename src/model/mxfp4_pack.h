// model/mxfp4_pack.h: weights rounded to MXFP4.
//
//   block of 32 values   s = 2^e, the smallest power of two that is at least max|w| / 7; e within [-120, 120]
//                        q = w / s, at most 6 in magnitude, rounded to E2M1, ties to even
//
// Values between 6 and 7 times s saturate. That costs less than the coarser scale that would hold them: 6.5 % less squared
// error on normal weights than a divisor of 6.
#pragma once

#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa {

// What rounding did to some values.
struct RoundingErrors {
  uint64_t values = 0, saturated = 0;
  double squares = 0, error_squares = 0;  // sums over w and over w - q * s
  float error_max = 0;

  void add(const RoundingErrors& other);
  double relative_rms() const;  // 0 for values that are all zero
  double saturated_share() const { return values > 0 ? double(saturated) / double(values) : 0; }
};

// The scale code of one block of kMxfp4Block finite values, and its packed values.
uint8_t pack_mxfp4(const float* w, uint8_t* packed, RoundingErrors& errors);

}  // namespace dsa
