// kernels/expert_linear/expert_linear.h: linear for many small groups of rows, each with a matrix of its own:
// experts whose weights are plain or FP8.
//
//   group.y[r, o] = sum over i of  group.weight[o, i] * x[group.row_begin + r, i]      for each group, r < rows
//
// On GPUs the rows of a group may become known only when the product starts: then `range` says where to read them,
// row_begin and rows do not count, and y is that of row 0 of x. Elsewhere range is null. FP8 weights as in linear. Precision and order of sums as in linear.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct ExpertLinearGroup {
  const void* weight;                    // [out_dim, in_dim]
  int row_begin, rows;                   // in x; rows may be 0
  float* y;                              // [rows, out_dim]  output, rows y_stride apart
  const float* weight_scales = nullptr;  // [ceil(out_dim / 128), ceil(in_dim / 128)]  of f8_e4m3
  const int32_t* range = nullptr;        // [2]  first row and the one behind the last

  // With the rows that the range says.
  DSA_HD ExpertLinearGroup with_rows(int64_t y_stride) const {
    ExpertLinearGroup g = *this;
    if (range) g.row_begin = range[0], g.rows = range[1] - range[0], g.y = y + range[0] * y_stride;
    return g;
  }
};

struct ExpertLinearArgs {
  const float* x;                   // [all rows, in_dim]
  const ExpertLinearGroup* groups;  // [num_groups]
  int num_groups;
  DType weight_type;           // bf16, f32 or f8_e4m3; of all groups
  int64_t x_stride, y_stride;  // floats from row to row
  int in_dim, out_dim;
  int rows_max = 0;  // no group has more rows; 0: unknown
};
DSA_DECLARE_KERNEL(expert_linear, ExpertLinearArgs);

}  // namespace dsa
