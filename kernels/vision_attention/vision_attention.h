// kernels/vision_attention/vision_attention.h: attention in both directions inside each picture, nothing across.
//
//   s[t, h, p] = scale * q[t, h] . k[p, h]
//   o[t, h]    = sum over p of  softmax_p(s)[p] * v[p, h]      p over the patches of the picture of t
//
// f32, softmax with the maximum subtracted. The order of the sums depends on the keys alone: a query gives the same
// bits alone and among others. Memory beside the arguments is bounded, whatever the number of patches.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

constexpr int kVisionHeadDimMax = 256;

// Queries of one picture, with all of its patches as keys.
struct VisionAttentionRun {
  int64_t q_begin, k_begin;  // rows of q and o; of k and v
  int queries, keys;         // keys >= 1
};

struct VisionAttentionArgs {
  const float *q, *k, *v;                 // [patches, heads, dim]  heads are dense in their patch
  const VisionAttentionRun* runs;         // [num_runs]
  float* o;                               // [patches, heads, dim]  output
  int64_t q_stride, kv_stride, o_stride;  // floats from patch to patch
  int num_runs, heads, dim;               // dim at most kVisionHeadDimMax
  float scale;
};
DSA_DECLARE_KERNEL(vision_attention, VisionAttentionArgs);

}  // namespace dsa
