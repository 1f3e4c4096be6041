// kernels/rope/rope.h: rotary embedding by the position of each token, in place.
//
//   pairs:   lanes 2 i and 2 i + 1 are partners
//   halves:  lanes i and i + dim / 2 are partners            i in [0, dim / 2)
//   angle    = positions[t] * frequencies[i]
//   (x, y)  -> amplitude * ( x cos(angle) - y sin(angle), x sin(angle) + y cos(angle) )
//
// f32. The angle is an f32 product; its sine and cosine are exact to f32 at any size, so that 1M positions are as good
// as the first.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

enum class RopeKind { none, pairs, halves };

constexpr int kRopeDimMax = 512;

struct RopeArgs {
  float* x;                           // [tokens, heads, dim]  the lanes that turn
  const int32_t* positions;           // [tokens]
  const float* frequencies;           // [dim / 2]
  int64_t token_stride, head_stride;  // floats
  int tokens, heads, dim;             // dim is even, at most kRopeDimMax
  RopeKind kind;                      // pairs or halves
  float amplitude;
};
DSA_DECLARE_KERNEL(rope, RopeArgs);

// YaRN stretches the slow frequencies by `factor` and leaves the fast ones, with a ramp between:
//   c(r)        = dim * ln( original_context / (2 pi r) ) / ( 2 ln theta )
//   low, high   = max(c(beta_fast), 0), min(c(beta_slow), dim - 1)       truncate: of floor(c), ceil(c)
//   ramp        = clamp( (i - low) / (high - low), 0, 1 )                high = low + 0.001 if they are equal
//   f'          = f (1 - ramp) + f / factor * ramp
struct Yarn {
  double factor = 1, original_context = 0, beta_fast = 32, beta_slow = 1;  // factor 1: f' = f
  bool truncate = true;
};

// f[i] = theta^(-2 i / dim), stretched.
void fill_rope_frequencies(float* frequencies, int dim, double theta, const Yarn& yarn);

}  // namespace dsa
