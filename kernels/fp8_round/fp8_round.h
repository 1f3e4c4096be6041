// kernels/fp8_round/fp8_round.h: rounds rows to what an FP8 cache would hold, in place.
//
// Per group of at most kFp8Block consecutive values of a row:
//   scale = the smallest power of two that is at least max( max |x|, 1e-4 ) / 448      see Fp8Row in common/paged.h
//   x     = e4m3( x / scale ) * scale                    round to nearest, ties to even
//
// f32 in and out; a cache that stores codes and scales holds exactly these values. NaN stays NaN.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct Fp8RoundArgs {
  float* x;  // [rows, dim]  dense
  int64_t rows;
  int dim;
};
DSA_DECLARE_KERNEL(fp8_round, Fp8RoundArgs);

}  // namespace dsa
