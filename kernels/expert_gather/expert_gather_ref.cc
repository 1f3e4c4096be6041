// kernels/expert_gather/expert_gather_ref.cc: one copy a row.
#include <cstring>

#include "kernels/expert_gather/expert_gather.h"

namespace dsa {

void ref::expert_gather(const ExpertGatherArgs& a, Queue& queue) {
  queue.parallel_for(int64_t(a.tokens) * a.top_k, [&](int64_t row) {
    const int64_t t = a.pairs[row] / a.top_k;
    memcpy(a.y + row * a.dim, a.x + t * a.dim, size_t(a.dim) * sizeof(float));
  });
}

}  // namespace dsa
