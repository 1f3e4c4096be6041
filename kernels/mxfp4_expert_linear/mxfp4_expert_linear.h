// kernels/mxfp4_expert_linear/mxfp4_expert_linear.h: groups of FP8 rows, each times an MXFP4 matrix of its own that is
// expanded on the way.
//
//   what mxfp4_to_fp8 and then fp8_expert_linear give, bit for bit on the same device, without codes in memory
//
// So weights are exact where the spread of a row is kMxfp4SpreadMax at most; exponents are those of mxfp4_exponents.
#pragma once

#include "kernels/common/fp8_tiles.h"
#include "kernels/common/kernel.h"

namespace dsa {

struct Mxfp4ExpertLinearGroup {
  const uint8_t* blocks;     // [out_dim, in_dim / 2]
  const uint8_t* scales;     // [out_dim, in_dim / 32]
  const int16_t* exponents;  // [out_dim]
  const int32_t* range;      // [2]  first row and the one behind the last
  float* y;                  // output: where row 0 of x would go, rows y_stride apart
};

struct Mxfp4ExpertLinearArgs {
  const uint8_t* x;                      // [fp8_tile_bytes(rows, in_dim)]
  const float* x_scales;                 // [rows]
  const Mxfp4ExpertLinearGroup* groups;  // [num_groups]
  int num_groups, rows, in_dim, out_dim;
  int64_t y_stride;  // floats
};
DSA_DECLARE_KERNEL(mxfp4_expert_linear, Mxfp4ExpertLinearArgs);

}  // namespace dsa
