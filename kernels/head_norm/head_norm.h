// kernels/head_norm/head_norm.h: RMS norm of every head of a token by itself, in place.
//
//   x[t, h, d] = weight[d] * x[t, h, d] / sqrt( mean over d of x[t, h, d]^2 + eps )
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct HeadNormArgs {
  float* x;                           // [tokens, heads, dim]  input and output
  const float* weight;                // [dim]
  int64_t token_stride, head_stride;  // floats
  int64_t tokens;
  int heads, dim;
  float eps;
};
DSA_DECLARE_KERNEL(head_norm, HeadNormArgs);

}  // namespace dsa
