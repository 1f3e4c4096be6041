// kernels/fp8_pack/fp8_pack.h: rows become FP8 codes with one scale each, for fp8_expert_linear.
//
//   row r is x[ pairs[r] / top_k ], or x[r] if pairs is null
//   scales[r]                           = max over i of |row r| / 448, or 1 if the row is zero
//   codes[fp8_tile_offset(rows, r, i)]  = e4m3( row r [i] / scales[r] )         0 in columns that fill up the last stretch
//
// Round to nearest, ties to even. A row that holds NaN or infinity gives products that are not finite.
#pragma once

#include "kernels/common/fp8_tiles.h"
#include "kernels/common/kernel.h"

namespace dsa {

struct Fp8PackArgs {
  const float* x;        // [any, in_dim]
  const int32_t* pairs;  // [rows]; null: every row of x in its order
  uint8_t* codes;        // [fp8_tile_bytes(rows, in_dim)]  output
  float* scales;         // [rows]  output
  int64_t x_stride;      // floats from row to row
  int rows, in_dim, top_k;
};
DSA_DECLARE_KERNEL(fp8_pack, Fp8PackArgs);

}  // namespace dsa
