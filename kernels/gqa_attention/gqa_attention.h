// kernels/gqa_attention/gqa_attention.h: causal attention of grouped query heads over paged keys and values.
//
//   g           = h / (heads / kv_heads)                     the key and value head that query head h reads
//   a[t, h, p]  = scale * q[t, h] . k.row(p)[g]
//   w[t, h, p]  = exp(a[t, h, p]) / ( exp(sinks[h]) + sum over p of exp(a[t, h, p]) )       no sink term if null
//   o[t, h]     = sum over p of  w[t, h, p] * v.row(p)[g]
//
// p runs over max(0, visible[t] - window) <= p < visible[t], or from 0 if window is 0. A sink is a raw logit: it is not
// scaled, and no value belongs to it. A token without any position gives zero. The order of the sums depends on the positions
// alone.
//
// exact  f32, with the maximum subtracted.
// fast   The same, except on GPUs where there are four tokens of a sequence and more, with dim at most 128 and a multiple
//        of 4: q * scale * log2(e), keys, values and weights are rounded to f16. Magnitudes beyond 65504 give NaN.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/paged.h"
#include "kernels/common/route.h"

namespace dsa {

struct GqaAttentionArgs {
  const float* q;                    // [tokens, heads, dim]  dense
  const int32_t* sequence_of;        // [tokens]
  const int32_t* visible;            // [tokens]
  PagedRows k, v;                    // rows of [kv_heads, dim], of the same format
  const float* sinks;                // [heads]; null: none
  float* o;                          // [tokens, heads, dim]  output, dense
  int tokens, heads, kv_heads, dim;  // heads is a multiple of kv_heads
  int window;                        // positions; 0: all
  float scale;
  Route route = Route::exact;
  int num_sequences = 0;  // that the tokens belong to, if known

  int group() const { return heads / kv_heads; }
  int first(int64_t t) const { return window > 0 && visible[t] > window ? visible[t] - window : 0; }
};
DSA_DECLARE_KERNEL(gqa_attention, GqaAttentionArgs);

}  // namespace dsa
