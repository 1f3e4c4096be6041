// kernels/gated_norm/gated_norm.cu: one warp a head.
#include "kernels/common/cuda.cuh"
#include "kernels/gated_norm/gated_norm.h"

namespace dsa {

void cuda::gated_norm(const GatedNormArgs& a, Queue& queue) {
  each_warp(queue, a.rows * a.heads, [a] __device__(int64_t i, int lane) {
    const float *x = a.x + i * a.dim, *gate = a.gate + i * a.dim;
    float* y = a.y + i * a.dim;
    float squares = 0;
    for (int d = lane; d < a.dim; d += kWarp) squares += x[d] * x[d];
    const float factor = 1 / sqrtf(warp_sum(squares) / a.dim + a.eps);
    for (int d = lane; d < a.dim; d += kWarp) y[d] = x[d] * factor * a.weight[d] * sigmoid(gate[d]);
  });
}

}  // namespace dsa
