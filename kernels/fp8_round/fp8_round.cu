// kernels/fp8_round/fp8_round.cu: one warp a group of values that share a scale.
#include "kernels/common/cuda.cuh"
#include "kernels/fp8_round/fp8_round.h"

namespace dsa {
namespace {

// The smallest power of two that is at least x, for normal x > 0.
__device__ float power_of_two_above(float x) {
  const uint32_t bits = f32_to_bits(x);
  return bits_to_f32(((bits >> 23) + ((bits & 0x7fffff) != 0)) << 23);
}

}  // namespace

void cuda::fp8_round(const Fp8RoundArgs& a, Queue& queue) {
  const int64_t groups = ceil_div(a.dim, kFp8Block);
  each_warp(queue, a.rows * groups, [a, groups] __device__(int64_t i, int lane) {
    const int begin = int(i % groups) * kFp8Block, n = min(a.dim - begin, kFp8Block);
    float* x = a.x + i / groups * a.dim + begin;
    float largest = 1e-4f;
    for (int d = lane; d < n; d += kWarp) largest = fmaxf(largest, fabsf(x[d]));
    const float scale = power_of_two_above(warp_max(largest) / 448);
    for (int d = lane; d < n; d += kWarp) x[d] = e4m3_to_f32(f32_to_e4m3(x[d] / scale)) * scale;
  });
}

}  // namespace dsa
