// kernels/top_k/top_k.cu: one block a row. The digits of the smallest key that is kept are found from the top, by counting;
// one pass more writes the positions in their order.
#include "kernels/top_k/top_k.cuh"
#include "kernels/top_k/top_k.h"

namespace dsa {
namespace {

constexpr int kThreads = kTopKThreads;

__global__ void __launch_bounds__(kThreads) top_k_kernel(const __grid_constant__ TopKArgs a) {
  __shared__ int counts[kBins], sums[kThreads / kWarp];
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
    const int shift = shift_of(digit), bins = bins_of(digit);
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
    const int above = sum_below(of_high + of_low, sums, total);
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
    const int equal_below = used_equal + sum_below(ties, sums, equals);
    const bool keep = p < visible && (key > least || (ties && equal_below < equal));
    __syncthreads();
    const int at = used + sum_below(keep, sums, taken);
    if (keep) selected[at] = p;
    __syncthreads();
    used += taken, used_equal += equals;
  }
}

}  // namespace

void cuda::top_k(const TopKArgs& a, Queue& queue) {
  launch(queue, unsigned(a.tokens), kThreads, 0, top_k_kernel, a);
}

}  // namespace dsa
