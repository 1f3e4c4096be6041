// kernels/hadamard/hadamard.cu: one block a row, butterflies in shared memory.
#include "kernels/common/cuda.cuh"
#include "kernels/hadamard/hadamard.h"

namespace dsa {

void cuda::hadamard(const HadamardArgs& a, Queue& queue) {
  const auto transform = [a] __device__(int64_t r) {
    float* row = dynamic_shared<float>();  // [dim]
    float* x = a.x + r * a.dim;
    for (int i = threadIdx.x; i < a.dim; i += blockDim.x) row[i] = x[i];
    for (int span = 1; span < a.dim; span *= 2) {
      __syncthreads();
      for (int pair = threadIdx.x; pair < a.dim / 2; pair += blockDim.x) {
        const int i = pair / span * 2 * span + pair % span;
        const float sum = row[i] + row[i + span], difference = row[i] - row[i + span];
        row[i] = sum, row[i + span] = difference;
      }
    }
    __syncthreads();
    const float factor = 1 / sqrtf(float(a.dim));
    for (int i = threadIdx.x; i < a.dim; i += blockDim.x) x[i] = row[i] * factor;
  };
  each_block(queue, a.rows, threads_for(ceil_div(a.dim, 2)), transform, size_t(a.dim) * sizeof(float));
}

}  // namespace dsa
