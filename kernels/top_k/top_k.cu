// kernels/top_k/top_k.cu: one block a row. The digits of the smallest key that is kept are found from the top, by counting;
// one pass more writes the positions in their order.
#include "kernels/common/cuda.cuh"
#include "kernels/top_k/top_k.h"

namespace dsa {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr int kBins = 2048, kDigits = 3;  // digits of 11, 11 and 10 bits

// Rises with the score; NaN is below every number, and the zeros are equal.
__device__ uint32_t key_of(float score) {
  if (score != score) return 0;
  const uint32_t bits = f32_to_bits(score + 0.f);  // -0 + 0 is +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ int shift_of(int digit) { return digit == 0 ? 21 : digit == 1 ? 10 : 0; }

// The exclusive sum of `count` over the threads below this one; `total` is that of all.
__device__ int sum_below(int count, int& total) {
  __shared__ int sums[kWarps];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int sum = count;
  for (int lanes = 1; lanes < kWarp; lanes *= 2) {
    const int below = __shfl_up_sync(kAllLanes, sum, lanes);
    if (lane >= lanes) sum += below;
  }
  __syncthreads();
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

__global__ void __launch_bounds__(kThreads) top_k_kernel(const __grid_constant__ TopKArgs a) {
  __shared__ int counts[kBins];
  __shared__ uint32_t found_digit;
  __shared__ int found_above;
  begin_kernel();
  const int64_t t = blockIdx.x;
  const float* scores = a.scores + t * a.scores_stride;
  int32_t* selected = a.selected + t * a.top_k;
  const int visible = a.visible[t];
  if (visible <= a.top_k) {
    for (int i = threadIdx.x; i < a.top_k; i += kThreads) selected[i] = i < visible ? i : -1;
    return;
  }

  // The keys above `least` are all kept, and `equal` of those that equal it, the first ones.
  uint32_t least = 0;
  int equal = a.top_k;
  for (int digit = 0; digit < kDigits; ++digit) {
    const int shift = shift_of(digit), bins = digit == 2 ? 1024 : kBins;
    for (int i = threadIdx.x; i < kBins; i += kThreads) counts[i] = 0;
    __syncthreads();
    for (int p = threadIdx.x; p < visible; p += kThreads) {
      const uint32_t key = key_of(scores[p]);
      if (digit == 0 || key >> shift_of(digit - 1) == least >> shift_of(digit - 1))
        atomicAdd(&counts[key >> shift & (bins - 1)], 1);
    }
    __syncthreads();
    // From the highest bin down: two bins a thread.
    const int high = kBins - 1 - 2 * int(threadIdx.x);
    const int of_high = counts[high], of_low = counts[high - 1];
    int total;
    const int above = sum_below(of_high + of_low, total);
    if (above < equal && above + of_high >= equal) found_digit = high, found_above = above;
    if (above + of_high < equal && above + of_high + of_low >= equal)
      found_digit = high - 1, found_above = above + of_high;
    __syncthreads();
    least |= found_digit << shift;
    equal -= found_above;
    __syncthreads();
  }

  int used = 0, used_equal = 0;
  for (int begin = 0; begin < visible && used < a.top_k; begin += kThreads) {
    const int p = begin + int(threadIdx.x);
    const uint32_t key = p < visible ? key_of(scores[p]) : 0;
    const bool ties = p < visible && key == least;
    int equals, taken;
    const int equal_below = used_equal + sum_below(ties, equals);
    const bool keep = p < visible && (key > least || (ties && equal_below < equal));
    const int at = used + sum_below(keep, taken);
    if (keep) selected[at] = p;
    used += taken, used_equal += equals;
  }
}

}  // namespace

void cuda::top_k(const TopKArgs& a, Queue& queue) {
  launch(queue, unsigned(a.tokens), kThreads, 0, top_k_kernel, a);
}

}  // namespace dsa
