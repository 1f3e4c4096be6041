// kernels/expert_combine/expert_combine_simd.cc: blocks of channels of a token go to the threads.
#include "kernels/common/simd.h"
#include "kernels/expert_combine/expert_combine.h"

namespace dsa {

void DSA_ISA::expert_combine(const ExpertCombineArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 1024;  // channels
  const int64_t blocks = (a.dim + kBlock - 1) / kBlock;
  queue.parallel_for(a.tokens * blocks, [&](int64_t i) {
    const int64_t t = i / blocks, begin = i % blocks * kBlock;
    const int64_t end = begin + kBlock < a.dim ? begin + kBlock : a.dim;
    const int32_t* rows = a.rows + t * a.top_k;
    const float* weights = a.expert_weights + t * a.top_k;
    for_each_vector(begin, end, [&](int64_t d, size_t n) {
      Vec y = zero();
      for (int slot = 0; slot < a.top_k; ++slot)
        y = fma(set(weights[slot]), load(a.x + int64_t(rows[slot]) * a.dim + d, n), y);
      store(y, a.y + t * a.dim + d, n);
    });
  });
}

}  // namespace dsa
