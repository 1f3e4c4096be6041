// kernels/router/router_ref.cc: one pass over the experts that keeps the best of them; tokens go to the
// threads.
#include "kernels/common/functions.h"
#include "kernels/router/router.h"

namespace dsa {
namespace {

float wanted(const RouterArgs& a, float s, int e) { return a.bias ? s + a.bias[e] : s; }

// The groups that stay open.
void open_groups(const RouterArgs& a, const float* logits, bool (&open)[kRouterGroupsMax]) {
  const int size = a.experts / a.groups;
  float sums[kRouterGroupsMax];
  for (int g = 0; g < a.groups; ++g) {
    float best = -INFINITY, second = size > 1 ? -INFINITY : 0;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float value = wanted(a, float(sigmoid(logits[e])), e);
      if (value > best) {
        if (size > 1) second = best;
        best = value;
      } else if (value > second) {
        second = value;
      }
    }
    sums[g] = best + second;
    open[g] = false;
  }
  for (int i = 0; i < a.top_groups; ++i) {
    int best = -1;
    for (int g = 0; g < a.groups; ++g)
      if (!open[g] && (best < 0 || sums[g] > sums[best])) best = g;
    open[best] = true;
  }
}

}  // namespace

void ref::router(const RouterArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const float* logits = a.logits + t * a.experts;
    int32_t* ids = a.expert_ids + t * a.top_k;
    float* weights = a.expert_weights + t * a.top_k;
    const bool grouped = a.top_groups < a.groups;
    const int group_size = a.experts / a.groups;
    bool open[kRouterGroupsMax];
    if (grouped) open_groups(a, logits, open);

    // ids and weights hold the best so far, in order. A later expert passes only those it beats.
    int chosen = 0, finite = 0;
    for (int e = 0; e < a.experts; ++e) {
      if (grouped && !open[e / group_size]) continue;
      const float s = float(sigmoid(logits[e]));
      const float value = wanted(a, s, e);
      if (std::isnan(value)) continue;
      finite += std::isfinite(logits[e]);
      int slot = chosen < a.top_k ? chosen++ : a.top_k;
      while (slot > 0 && value > wanted(a, weights[slot - 1], ids[slot - 1])) {
        if (slot < a.top_k) ids[slot] = ids[slot - 1], weights[slot] = weights[slot - 1];
        --slot;
      }
      if (slot < a.top_k) ids[slot] = e, weights[slot] = s;
    }

    for (int e = 0; chosen < a.top_k; ++e) {  // only NaN is left: the lowest ids
      bool free = true;
      for (int slot = 0; slot < chosen; ++slot) free = free && ids[slot] != e;
      if (free) ids[chosen] = e, weights[chosen++] = NAN;
    }

    double sum = 0;
    for (int slot = 0; slot < a.top_k; ++slot) sum += weights[slot];
    const double factor = a.renormalize ? a.scale / (sum + 1e-20) : a.scale;
    for (int slot = 0; slot < a.top_k; ++slot)
      weights[slot] = finite < a.top_k ? NAN : float(weights[slot] * factor);
  });
}

}  // namespace dsa
