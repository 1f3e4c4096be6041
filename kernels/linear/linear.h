// kernels/linear/linear.h: the product of rows with a weight matrix.
//
//   y[r, o] = sum over i of  weight[o, i] * x[r, i]
//
// An FP8 weight is e4m3(code[o, i]) * weight_scales[o / 128, i / 128]; NaN codes give NaN.
// Activations f32, weights bf16, f32 or FP8, sums f32. The order of a sum depends on in_dim alone, never on the
// number of rows: a row computed alone equals the same row in a batch, bit for bit.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct LinearArgs {
  const float* x;              // [rows, in_dim]
  const void* weight;          // [out_dim, in_dim]
  DType weight_type;           // bf16, f32 or f8_e4m3
  float* y;                    // [rows, out_dim]  output
  int64_t x_stride, y_stride;  // floats from row to row
  int rows, in_dim, out_dim;
  const float* weight_scales = nullptr;  // [ceil(out_dim / 128), ceil(in_dim / 128)]  of f8_e4m3
};
DSA_DECLARE_KERNEL(linear, LinearArgs);

}  // namespace dsa
