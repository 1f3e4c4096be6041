// kernels/expert_plan/expert_plan_ref.cc: a counting sort, stable, one thread.
#include <algorithm>

#include "kernels/expert_plan/expert_plan.h"

namespace dsa {

void ref::expert_plan(const ExpertPlanArgs& a, Queue&) {
  const int64_t num_pairs = int64_t(a.tokens) * a.top_k;

  // offsets[e + 1] counts the pairs of e, then becomes the sum of all counts up to e.
  std::fill_n(a.offsets, a.experts + 1, 0);
  for (int64_t pair = 0; pair < num_pairs; ++pair) ++a.offsets[a.expert_ids[pair] + 1];
  for (int e = 0; e < a.experts; ++e) a.offsets[e + 1] += a.offsets[e];

  // offsets[e] runs ahead while the rows of e are handed out and ends as offsets[e + 1] was: shift it back.
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const int32_t row = a.offsets[a.expert_ids[pair]]++;
    a.pairs[row] = int32_t(pair);
    a.rows[pair] = row;
  }
  std::copy_backward(a.offsets, a.offsets + a.experts, a.offsets + a.experts + 1);
  a.offsets[0] = 0;
}

}  // namespace dsa
