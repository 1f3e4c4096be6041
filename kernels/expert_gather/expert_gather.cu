// kernels/expert_gather/expert_gather.cu: one block a row.
#include "kernels/common/cuda.cuh"
#include "kernels/expert_gather/expert_gather.h"

namespace dsa {

void cuda::expert_gather(const ExpertGatherArgs& a, Queue& queue) {
  each_block(queue, int64_t(a.tokens) * a.top_k, threads_for(a.dim), [a] __device__(int64_t row) {
    const float* x = a.x + int64_t(a.pairs[row] / a.top_k) * a.dim;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) a.y[row * a.dim + d] = x[d];
  });
}

}  // namespace dsa
