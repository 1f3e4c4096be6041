// kernels/expert_combine/expert_combine_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/expert_combine/expert_combine.h"

namespace dsa {

void ref::expert_combine(const ExpertCombineArgs& a, Queue&) {
  for (int t = 0; t < a.tokens; ++t)
    for (int d = 0; d < a.dim; ++d) {
      double y = 0;
      for (int slot = 0; slot < a.top_k; ++slot) {
        const int64_t pair = int64_t(t) * a.top_k + slot;
        y += double(a.expert_weights[pair]) * a.x[int64_t(a.rows[pair]) * a.dim + d];
      }
      a.y[int64_t(t) * a.dim + d] = float(y);
    }
}

}  // namespace dsa
