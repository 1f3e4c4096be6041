// kernels/linear/linear.h: the product of rows with a weight matrix.
//
//   y[r, o] = sum over i of  weight[o, i] * x[r, i]
//
// Activations f32, weights bf16 or f32, sums f32. The order of a sum depends on in_dim alone, never on the
// number of rows: a row computed alone equals the same row in a batch, bit for bit.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct LinearArgs {
  const float* x;              // [rows, in_dim]
  const void* weight;          // [out_dim, in_dim]
  DType weight_type;           // bf16 or f32
  float* y;                    // [rows, out_dim]  output
  int64_t x_stride, y_stride;  // floats from row to row
  int rows, in_dim, out_dim;
};
DSA_DECLARE_KERNEL(linear, LinearArgs);

}  // namespace dsa
