// kernels/expert_combine/expert_combine.cu: one block a token, one thread a channel.
#include "kernels/common/cuda.cuh"
#include "kernels/expert_combine/expert_combine.h"

namespace dsa {

void cuda::expert_combine(const ExpertCombineArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    const int32_t* rows = a.rows + t * a.top_k;
    const float* weights = a.expert_weights + t * a.top_k;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      float y = 0;
      for (int slot = 0; slot < a.top_k; ++slot) y += weights[slot] * a.x[int64_t(rows[slot]) * a.dim + d];
      a.y[t * a.dim + d] = y;
    }
  });
}

}  // namespace dsa
