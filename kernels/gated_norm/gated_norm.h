// kernels/gated_norm/gated_norm.h: the output norm of a KDA head with its gate.
//
//   y[r, h, d] = x[r, h, d] * rsqrt( mean over d of x[r, h]^2 + eps ) * weight[d] * sigmoid(gate[r, h, d])
//
// f32. y may be x.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct GatedNormArgs {
  const float* x;       // [rows, heads, dim]
  const float* gate;    // [rows, heads, dim]
  const float* weight;  // [dim]
  float* y;             // [rows, heads, dim]  output
  int64_t rows;
  int heads, dim;
  float eps;
};
DSA_DECLARE_KERNEL(gated_norm, GatedNormArgs);

}  // namespace dsa
