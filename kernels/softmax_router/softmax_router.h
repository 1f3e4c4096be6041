// kernels/softmax_router/softmax_router.h: chooses the experts of each token by their logits alone.
//
//   chosen     = the top_k experts with the largest logits[t, e], best first; the lower id wins a tie
//   weights[t] = softmax over the chosen of logits[t, e]
//
// A bias of the logits is an add_bias before. f32. As in router, a NaN logit is never chosen while others are left, and
// a row with fewer than top_k finite logits is completed with the lowest ids and gets NaN weights.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct SoftmaxRouterArgs {
  const float* logits;    // [tokens, experts]
  int32_t* expert_ids;    // [tokens, top_k]  output, best first
  float* expert_weights;  // [tokens, top_k]  output
  int tokens, experts, top_k;
};
DSA_DECLARE_KERNEL(softmax_router, SoftmaxRouterArgs);

}  // namespace dsa
