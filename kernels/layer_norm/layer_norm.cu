// kernels/layer_norm/layer_norm.cu: one block a row, which stays in L1 between its readings.
#include "kernels/common/cuda.cuh"
#include "kernels/layer_norm/layer_norm.h"

namespace dsa {

void cuda::layer_norm(const LayerNormArgs& a, Queue& queue) {
  each_block(queue, a.rows, threads_for(a.dim), [a] __device__(int64_t r) {
    const float* x = a.x + r * a.x_stride;
    float* y = a.y + r * a.y_stride;
    const float first = x[0];  // taken off first, so that a large mean costs no digits
    float sum = 0, squares = 0;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) sum += x[d] - first;
    const float mean = block_sum(sum) / a.dim;
    const auto centred = [&](int d) { return x[d] - first - mean; };
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) squares += centred(d) * centred(d);
    const float factor = 1 / sqrtf(block_sum(squares) / a.dim + a.eps);
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x)
      y[d] = centred(d) * factor * a.weight[d] + (a.bias ? a.bias[d] : 0.f);
  });
}

}  // namespace dsa
