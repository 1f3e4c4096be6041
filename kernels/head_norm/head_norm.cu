// kernels/head_norm/head_norm.cu: one warp a head.
#include "kernels/common/cuda.cuh"
#include "kernels/head_norm/head_norm.h"

namespace dsa {

void cuda::head_norm(const HeadNormArgs& a, Queue& queue) {
  each_warp(queue, a.tokens * a.heads, [a] __device__(int64_t i, int lane) {
    float* x = a.x + i / a.heads * a.token_stride + i % a.heads * a.head_stride;
    float squares = 0;
    for (int d = lane; d < a.dim; d += kWarp) squares += x[d] * x[d];
    const float scale = 1 / sqrtf(warp_sum(squares) / a.dim + a.eps);
    for (int d = lane; d < a.dim; d += kWarp) x[d] = x[d] * scale * a.weight[d];
  });
}

}  // namespace dsa
