// kernels/layer_norm/layer_norm.h: normalisation of rows with the mean removed.
//
//   y[r, d] = (x[r, d] - mean) * rsqrt(variance + eps) * weight[d] + bias[d]      biased variance
//
// f32; sums in f32 or wider. y may be x.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct LayerNormArgs {
  const float* x;              // [rows, dim]
  const float* weight;         // [dim]
  const float* bias;           // [dim]; null: zero
  float* y;                    // [rows, dim]  output
  int64_t x_stride, y_stride;  // floats from row to row
  int64_t rows;
  int dim;
  float eps;
};
DSA_DECLARE_KERNEL(layer_norm, LayerNormArgs);

}  // namespace dsa
