// kernels/attn_residual/attn_residual.h: attention over the outputs of earlier layers.
//
//   score[t, j] = sum over d of  source_j[t, d] * rsqrt( mean over d of source_j[t, d]^2 + eps ) * query[d]
//   p           = softmax over j of score[t, j]                        no factor, no temperature
//   y[t, d]     = sum over j of  p[t, j] * source_j[t, d]              the raw sources
//
// f32. y is none of the sources.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct AttnResidualArgs {
  static constexpr int kMaxSources = 64;

  const float* const* sources;  // [num_sources] of [tokens, dim]
  const float* query;           // [dim]  norm weight times projection row
  float* y;                     // [tokens, dim]  output
  int num_sources, tokens, dim;
  float eps;
};
DSA_DECLARE_KERNEL(attn_residual, AttnResidualArgs);

}  // namespace dsa
