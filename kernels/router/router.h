// kernels/router/router.h: chooses the experts of each token and weighs them.
//
//   s[t, e]    = sigmoid(logits[t, e])
//   wanted     = s[t, e] + bias[e]
//   open       = every expert; if top_groups < groups, those of the top_groups groups with the largest sum of their two
//                most wanted experts. Group i is the experts [i, i + 1) * experts / groups; the lower group wins a tie
//   chosen     = the top_k open experts that are most wanted; the lower id wins a tie
//   weights[t] = s of the chosen, divided by (their sum + 1e-20) if renormalize, times scale
//
// The bias chooses experts but does not weigh them, as in training. f32. A NaN logit is never chosen while others
// are left; a row with fewer than top_k finite logits is completed with the lowest ids not chosen yet and gets NaN
// weights, so that the fault reaches the logits instead of being hidden. In the sum of a group NaN counts as -inf.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct RouterArgs {
  const float* logits;    // [tokens, experts]
  const float* bias;      // [experts]; null: zero
  int32_t* expert_ids;    // [tokens, top_k]  output, best first
  float* expert_weights;  // [tokens, top_k]  output
  int tokens, experts, top_k;
  bool renormalize;
  float scale;
  int groups = 1, top_groups = 1;  // groups divides experts; the open groups hold at least top_k experts
};

constexpr int kRouterGroupsMax = 64;
DSA_DECLARE_KERNEL(router, RouterArgs);

}  // namespace dsa
