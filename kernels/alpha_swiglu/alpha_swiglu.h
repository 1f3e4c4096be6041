// kernels/alpha_swiglu/alpha_swiglu.h: the gated activation of gpt-oss, on columns that alternate.
//
//   g = min( x[r, 2 d], limit );   u = clamp( x[r, 2 d + 1], -limit, limit )
//   y[r, d] = g sigmoid(alpha g) (u + 1)
//
// The gate has no lower limit. f32; NaN stays NaN.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct AlphaSwigluArgs {
  const float* x;  // [rows, 2 * dim]
  float* y;        // [rows, dim]  output, another memory
  int64_t rows;
  int dim;
  float alpha, limit;
};
DSA_DECLARE_KERNEL(alpha_swiglu, AlphaSwigluArgs);

}  // namespace dsa
