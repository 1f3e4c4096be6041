// kernels/top_k/top_k.cuh: keys that rise with the scores, and their digits, from the top: 11, 11 and 10 bits.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kTopKThreads = 1024;
constexpr int kBins = 2048, kDigits = 3;

// Rises with the score; NaN is below every number, and the zeros are equal.
__device__ inline uint32_t key_of(float score) {
  if (score != score) return 0;
  const uint32_t bits = f32_to_bits(score + 0.f);  // -0 + 0 is +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline int shift_of(int digit) { return digit == 0 ? 21 : digit == 1 ? 10 : 0; }
__device__ inline int bins_of(int digit) { return digit == 2 ? kBins / 2 : kBins; }

// The sum over the threads of the block below this one; `total` is that of all. Two calls need a barrier between them.
__device__ inline int sum_below(int count, int* sums, int& total) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int sum = count;
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const int below = __shfl_up_sync(kAllLanes, sum, lanes);
    if (lane >= lanes) sum += below;
  }
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  int before = sums[lane];
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const int below = __shfl_up_sync(kAllLanes, before, lanes);
    if (lane >= lanes) before += below;
  }
  total = __shfl_sync(kAllLanes, before, kWarp - 1);
  const int below_warp = __shfl_sync(kAllLanes, before, max(warp - 1, 0));
  return sum - count + (warp > 0 ? below_warp : 0);
}

}  // namespace dsa
