// kernels/fp8_expert_linear/fp8_expert_linear.h: groups of FP8 rows, each times an FP8 matrix of its own: experts whose
// MXFP4 weights mxfp4_to_fp8 has expanded.
//
//   y[r, o] = x_scales[r] * 2^(group.exponents[o] - 127) * sum over i of  group.weight[o, i] * x[r, i]
//
// for each group and its rows r, range[0] <= r < range[1]. Both matrices lie as fp8_tiles.h says. Products of codes are
// exact; they are summed in f32, or, within 128 of them, in the narrower sums of the matrix units of a GPU.
#pragma once

#include "kernels/common/fp8_tiles.h"
#include "kernels/common/kernel.h"

namespace dsa {

struct Fp8ExpertLinearGroup {
  const uint8_t* weight;     // [fp8_tile_bytes(out_dim, in_dim)]
  const int16_t* exponents;  // [out_dim]
  const int32_t* range;      // [2]  first row and the one behind the last
  float* y;                  // output: where row 0 of x would go, rows y_stride apart
};

struct Fp8ExpertLinearArgs {
  const uint8_t* x;                    // [fp8_tile_bytes(rows, in_dim)]
  const float* x_scales;               // [rows]
  const Fp8ExpertLinearGroup* groups;  // [num_groups]
  int num_groups, rows, in_dim, out_dim;
  int64_t y_stride;     // floats
  int rows_beside = 0;  // as in mxfp4_to_fp8
};
DSA_DECLARE_KERNEL(fp8_expert_linear, Fp8ExpertLinearArgs);

}  // namespace dsa
