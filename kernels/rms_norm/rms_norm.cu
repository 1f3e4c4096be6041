// kernels/rms_norm/rms_norm.cu: one block a row, which stays in L1 between its two readings. linears sums in the same order.
#include "kernels/common/cuda.cuh"
#include "kernels/rms_norm/rms_norm.h"

namespace dsa {

void cuda::rms_norm(const RmsNormArgs& a, Queue& queue) {
  each_block(queue, a.rows, 256, [a] __device__(int64_t r) {
    const float* x = a.x + r * a.x_stride;
    float* y = a.y + r * a.y_stride;
    float squares = 0;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) squares += x[d] * x[d];
    const float scale = rsqrtf(block_sum(squares) / a.dim + a.eps);
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) y[d] = x[d] * scale * a.weight[d];
  });
}

}  // namespace dsa
