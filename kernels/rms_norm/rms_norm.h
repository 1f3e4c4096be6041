// kernels/rms_norm/rms_norm.h: root mean square normalisation of rows.
//
//   y[r, d] = x[r, d] * rsqrt( mean over d of x[r, d]^2 + eps ) * weight[d]
//
// f32; the mean is summed in f32 or wider. y may be x.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct RmsNormArgs {
  const float* x;              // [rows, dim]
  const float* weight;         // [dim]
  float* y;                    // [rows, dim]  output
  int64_t x_stride, y_stride;  // floats from row to row
  int64_t rows;
  int dim;
  float eps;
};
DSA_DECLARE_KERNEL(rms_norm, RmsNormArgs);

}  // namespace dsa
