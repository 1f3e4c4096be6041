// kernels/fp8_round/fp8_round.cu: one warp a group of values that share a scale.
#include "kernels/common/cuda.cuh"
#include "kernels/common/paged.h"
#include "kernels/fp8_round/fp8_round.h"

namespace dsa {

void cuda::fp8_round(const Fp8RoundArgs& a, Queue& queue) {
  const int64_t groups = ceil_div(a.dim, kFp8Block);
  each_warp(queue, a.rows * groups, [a, groups] __device__(int64_t i, int lane) {
    const int begin = int(i % groups) * kFp8Block, n = min(a.dim - begin, kFp8Block);
    float* x = a.x + i / groups * a.dim + begin;
    float largest = 0;
    for (int d = lane; d < n; d += kWarp) largest = fmaxf(largest, fabsf(x[d]));
    const float scale = Fp8Row::scale_of(warp_max(largest));
    for (int d = lane; d < n; d += kWarp) x[d] = e4m3_to_f32(f32_to_e4m3(x[d] / scale)) * scale;
  });
}

}  // namespace dsa
