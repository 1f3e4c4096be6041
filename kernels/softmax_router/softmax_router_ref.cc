// kernels/softmax_router/softmax_router_ref.cc: one pass over the experts that keeps the best of them; tokens go to
// the threads.
#include <algorithm>
#include <cmath>

#include "kernels/softmax_router/softmax_router.h"

namespace dsa {

void ref::softmax_router(const SoftmaxRouterArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const float* logits = a.logits + t * a.experts;
    int32_t* ids = a.expert_ids + t * a.top_k;
    float* weights = a.expert_weights + t * a.top_k;
    int chosen = 0, finite = 0;
    for (int e = 0; e < a.experts; ++e) {
      if (std::isnan(logits[e])) continue;
      finite += std::isfinite(logits[e]);
      int slot = chosen < a.top_k ? chosen++ : a.top_k;
      while (slot > 0 && logits[e] > logits[ids[slot - 1]]) {
        if (slot < a.top_k) ids[slot] = ids[slot - 1];
        --slot;
      }
      if (slot < a.top_k) ids[slot] = e;
    }
    for (int e = 0; chosen < a.top_k; ++e)  // only NaN is left: the lowest ids
      if (std::find(ids, ids + chosen, e) == ids + chosen) ids[chosen++] = e;

    double total = 0;
    const auto weight = [&](int slot) { return std::exp(double(logits[ids[slot]]) - logits[ids[0]]); };
    for (int slot = 0; slot < a.top_k; ++slot) total += weight(slot);
    for (int slot = 0; slot < a.top_k; ++slot)
      weights[slot] = finite < a.top_k ? NAN : float(weight(slot) / total);
  });
}

}  // namespace dsa
