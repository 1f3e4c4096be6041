// kernels/kda_gate/kda_gate.cu: one warp a head.
#include "kernels/common/cuda.cuh"
#include "kernels/kda_gate/kda_gate.h"

namespace dsa {
namespace {

__device__ void normalise(float* x, int dim, float factor, int lane) {
  float squares = 0;
  for (int d = lane; d < dim; d += kWarp) squares += x[d] * x[d];
  factor /= sqrtf(warp_sum(squares) + 1e-6f);  // added to the sum, not to the mean
  for (int d = lane; d < dim; d += kWarp) x[d] *= factor;
}

// log(1 + e^x), which for large x is x.
__device__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

}  // namespace

void cuda::kda_gate(const KdaGateArgs& a, Queue& queue) {
  each_warp(queue, a.rows * a.heads, [a] __device__(int64_t i, int lane) {
    const int64_t r = i / a.heads;
    const int h = int(i % a.heads);
    normalise(a.q + r * a.q_stride + h * a.dim, a.dim, 1 / sqrtf(float(a.dim)), lane);
    normalise(a.k + r * a.k_stride + h * a.dim, a.dim, 1, lane);

    float* g = a.g + i * a.dim;
    const float rate = expf(a.a_log[h]);
    for (int d = lane; d < a.dim; d += kWarp) {
      const float z = g[d] + a.dt_bias[h * a.dim + d];
      g[d] = a.lower_bound == 0 ? -rate * softplus(z) : a.lower_bound * sigmoid(rate * z);
    }
    if (lane == 0) a.beta[i] = sigmoid(a.beta[i]);
  });
}

}  // namespace dsa
