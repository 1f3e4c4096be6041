// kernels/attn_residual/attn_residual.cu: one block a token. Its rows are read twice, the second time from the cache.
#include "kernels/attn_residual/attn_residual.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

void cuda::attn_residual(const AttnResidualArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    __shared__ float score[AttnResidualArgs::kMaxSources];
    const int64_t row = t * a.dim;
    for (int j = 0; j < a.num_sources; ++j) {
      const float* source = a.sources[j] + row;
      float squares = 0, dot = 0;
      for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
        squares += source[d] * source[d];
        dot += source[d] * a.query[d];
      }
      squares = block_sum(squares), dot = block_sum(dot);
      if (threadIdx.x == 0) score[j] = dot / sqrtf(squares / a.dim + a.eps);
    }
    __syncthreads();

    float largest = -INFINITY, total = 0;
    for (int j = 0; j < a.num_sources; ++j) largest = fmaxf(largest, score[j]);
    for (int j = 0; j < a.num_sources; ++j) total += expf(score[j] - largest);
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      float y = 0;
      for (int j = 0; j < a.num_sources; ++j) y += expf(score[j] - largest) / total * a.sources[j][row + d];
      a.y[row + d] = y;
    }
  });
}

}  // namespace dsa
