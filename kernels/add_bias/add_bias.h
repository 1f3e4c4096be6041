// kernels/add_bias/add_bias.h: a bias for every row, or for every run of rows its own.
//
//   y[r, i, d] += bias[g, i, d]        offsets[g] <= r < offsets[g + 1]; g = 0 for every row if offsets is null
//
// f32; a bf16 bias is exact.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct AddBiasArgs {
  const void* bias;                 // [groups, parts, dim]
  DType bias_type;                  // bf16 or f32
  const int32_t* offsets;           // [groups + 1]  ascending; null: one group
  float* y;                         // [rows, parts, dim]  input and output
  int64_t row_stride, part_stride;  // floats
  int64_t rows;
  int groups, parts, dim;
};
DSA_DECLARE_KERNEL(add_bias, AddBiasArgs);

}  // namespace dsa
