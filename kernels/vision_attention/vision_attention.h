// kernels/vision_attention/vision_attention.h: attention in both directions inside each picture, nothing across.
//
//   s[t, h, p] = scale * q[t, h] . k[p, h]
//   o[t, h]    = sum over p of  softmax_p(s)[p] * v[p, h]      p over the patches of the picture of t
//
// exact  f32, softmax with the maximum subtracted.
// fast   On GPUs, with dim at most 128 and a multiple of 4: q * scale * log2(e), k, v and the weights of the softmax,
//        which are at most 1, are rounded to f16, sums are f32. Magnitudes beyond 65504 give NaN. Elsewhere as exact.
// The order of the sums depends on the keys alone: a query gives the same bits alone and among others. Memory beside the
// arguments is bounded, whatever the number of patches.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr int kVisionHeadDimMax = 256;

// Queries of one picture, with all of its patches as keys.
struct VisionAttentionRun {
  int64_t q_begin, k_begin;  // rows of q and o; of k and v
  int queries, keys;         // keys >= 1
};

struct VisionAttentionArgs {
  const float *q, *k, *v;          // [patches, heads, dim]
  const VisionAttentionRun* runs;  // [num_runs]
  float* o;                        // [patches, heads, dim]  output
  // Floats from patch to patch and from head to head. Keys of one head that lie together are read fastest.
  int64_t q_token_stride, q_head_stride, kv_token_stride, kv_head_stride, o_token_stride, o_head_stride;
  int num_runs, heads, dim;  // dim at most kVisionHeadDimMax
  float scale;
  Route route = Route::exact;

  const float* q_row(int64_t t, int h) const { return q + t * q_token_stride + h * q_head_stride; }
  const float* k_row(int64_t p, int h) const { return k + p * kv_token_stride + h * kv_head_stride; }
  const float* v_row(int64_t p, int h) const { return v + p * kv_token_stride + h * kv_head_stride; }
  float* o_row(int64_t t, int h) const { return o + t * o_token_stride + h * o_head_stride; }
};
DSA_DECLARE_KERNEL(vision_attention, VisionAttentionArgs);

}  // namespace dsa
