// kernels/top_k/top_k_sm90.cu: a cluster of blocks a row, a stretch of it each, whose keys stay in shared memory.
//
// The digits of the smallest key that is kept are found from the top: each block counts its keys, and all add the counts
// of all. Then each knows how many positions the blocks before it keep, and writes its own in their order. With a guess from
// the step before, only keys from there on are counted, which are few; should it turn out too high, they all are.
#include "kernels/common/cluster_sm90.cuh"
#include "kernels/top_k/top_k.cuh"
#include "kernels/top_k/top_k.h"

namespace dsa {
namespace {

constexpr int kThreads = kTopKThreads, kWarps = kThreads / kWarp;
constexpr size_t kKeysBytesMax = 160 * 1024;  // of a block; longer stretches are read again from the scores

struct Shared {
  int counts[kDigits][kBins];
  int sums[kWarps];
  int2 kept[kWarps];  // keys above the smallest, and equal to it; of the warps below this one
  int2 block_kept;    // of the block
  uint32_t found_digit;
  int found_above;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Somewhat below the smallest key that was kept: where it lies in the next step, or above, most likely.
__device__ uint32_t guess_of(uint32_t least) {
  const uint32_t digit = least >> 21;
  return (digit > 0 ? digit - 1 : 0) << 21;
}
#endif

// Grid (kBlocks * tokens) in clusters of kBlocks. Reads scores once if the keys of a block, at most `room`, fit.
template <int kBlocks>
__global__ void __launch_bounds__(kThreads, 2) top_k_kernel(const __grid_constant__ TopKArgs a, int room) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  auto* keys = dynamic_shared<uint32_t>();
  __shared__ Shared shared;
  for (int i = threadIdx.x; i < kDigits * kBins; i += kThreads) (&shared.counts[0][0])[i] = 0;
  begin_kernel();
  const int64_t t = blockIdx.x / kBlocks;
  const int block = blockIdx.x % kBlocks, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int visible = a.visible[t];
  int32_t* selected = a.selected + t * a.top_k;
  if (visible <= a.top_k) {
    for (int i = blockIdx.x % kBlocks * kThreads + threadIdx.x; i < a.top_k; i += kBlocks * kThreads)
      selected[i] = i < visible ? i : -1;
    return;
  }
  const int stretch = (visible + kBlocks - 1) / kBlocks, begin = min(block * stretch, visible),
            count = min(stretch, visible - begin);
  const float* scores = a.scores + t * a.scores_stride + begin;
  const bool fits = stretch <= room;
  __syncthreads();

  // Keys above `least` are all kept, and `equal` of those that equal it, the first ones.
  uint32_t least = 0, from = a.guesses ? a.guesses[t] : 0;
  int equal = a.top_k;
  for (int digit = 0; digit < kDigits; ++digit) {
    const int shift = shift_of(digit), bins = bins_of(digit);
    int* counts = shared.counts[digit];
    if (digit == 0) {
      constexpr int kUnroll = 8;
      for (int i = threadIdx.x; i < count; i += kUnroll * kThreads) {
        float loaded[kUnroll];
#pragma unroll
        for (int j = 0; j < kUnroll; ++j)
          loaded[j] = i + j * kThreads < count ? scores[i + j * kThreads] : 0.f;
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          if (i + j * kThreads >= count) break;
          const uint32_t key = key_of(loaded[j]);
          if (fits) keys[i + j * kThreads] = key;
          if (key >= from) atomicAdd(&counts[key >> shift], 1);
        }
      }
    } else {
      for (int i = threadIdx.x; i < count; i += kThreads) {
        const uint32_t key = fits ? keys[i] : key_of(scores[i]);
        if (key >> shift_of(digit - 1) == least >> shift_of(digit - 1))
          atomicAdd(&counts[key >> shift & (bins - 1)], 1);
      }
    }
    meet_cluster();
    // From the highest bin down: two bins a thread.
    const int low = kBins - 2 - 2 * int(threadIdx.x);
    int2 of = {0, 0};  // the lower bin, then the higher one
#pragma unroll
    for (int other = 0; other < kBlocks; ++other) {
      const int2 counted = load_int2(address_in(counts + low, other));
      of.x += counted.x, of.y += counted.y;
    }
    int total;
    const int above = sum_below(of.x + of.y, shared.sums, total);
    if (above < equal && above + of.y >= equal) shared.found_digit = low + 1, shared.found_above = above;
    if (above + of.y < equal && above + of.y + of.x >= equal)
      shared.found_digit = low, shared.found_above = above + of.y;
    __syncthreads();
    if (total < equal) {  // the guess was too high
      from = 0;
      meet_cluster();
      for (int i = threadIdx.x; i < kBins; i += kThreads) counts[i] = 0;
      __syncthreads();
      --digit;
      continue;
    }
    least |= shared.found_digit << shift;
    equal -= shared.found_above;
    __syncthreads();
  }

  if (a.guesses && block == 0 && threadIdx.x == 0) a.guesses[t] = guess_of(least);

  // Each warp has a run of the stretch; how many of its keys are kept, then those of the warps and blocks below.
  const int run = ((count + kWarps - 1) / kWarps + kWarp - 1) / kWarp * kWarp;
  const int run_begin = min(warp * run, count), run_end = min(run_begin + run, count);
  const auto key_at = [&](int i) { return fits ? keys[i] : key_of(scores[i]); };
  int2 kept = {0, 0};
  for (int i = run_begin + lane; i < run_end; i += kWarp) {
    const uint32_t key = key_at(i);
    kept.x += key > least, kept.y += key == least;
  }
  kept.x = __reduce_add_sync(kAllLanes, kept.x), kept.y = __reduce_add_sync(kAllLanes, kept.y);
  if (lane == 0) shared.kept[warp] = kept;
  __syncthreads();
  if (warp == 0) {
    const int2 own = shared.kept[lane];
    int2 sum = own;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const int x = __shfl_up_sync(kAllLanes, sum.x, lanes), y = __shfl_up_sync(kAllLanes, sum.y, lanes);
      if (lane >= lanes) sum.x += x, sum.y += y;
    }
    shared.kept[lane] = {sum.x - own.x, sum.y - own.y};
    if (lane == kWarp - 1) shared.block_kept = sum;
  }
  meet_cluster();
  int2 before = shared.kept[warp];
#pragma unroll
  for (int other = 0; other < kBlocks; ++other) {
    const int2 of_block = load_int2(address_in(&shared.block_kept, other));
    if (other < block) before.x += of_block.x, before.y += of_block.y;
  }
  const unsigned below = (1u << lane) - 1;
  for (int i = run_begin + lane; i - lane < run_end; i += kWarp) {
    const uint32_t key = i < run_end ? key_at(i) : 0;
    const bool above = i < run_end && key > least, ties = i < run_end && key == least;
    const unsigned aboves = __ballot_sync(kAllLanes, above), all_ties = __ballot_sync(kAllLanes, ties);
    const int ties_before = before.y + __popc(all_ties & below);
    const int at = before.x + __popc(aboves & below) + min(ties_before, equal);
    if (above || (ties && ties_before < equal)) selected[at] = begin + i;
    before.x += __popc(aboves), before.y += __popc(all_ties);
  }
  meet_cluster();  // nobody leaves whose memory is being read
#endif
}

template <int kBlocks>
void run(const TopKArgs& a, Queue& queue) {
  const size_t wanted = size_t(ceil_div(a.scores_stride, kBlocks)) * sizeof(uint32_t);
  const size_t bytes = wanted < kKeysBytesMax ? wanted : 0;
  launch_clusters(queue, unsigned(a.tokens) * kBlocks, kBlocks, kThreads, bytes, top_k_kernel<kBlocks>, a,
                  int(bytes / sizeof(uint32_t)));
}

}  // namespace

// Two blocks fit on a multiprocessor.
void sm90::top_k(const TopKArgs& a, Queue& queue) {
  const int blocks = 2 * static_cast<CudaQueue&>(queue).device().multiprocessors;
  if (8 * a.tokens <= blocks) return run<8>(a, queue);
  if (4 * a.tokens <= blocks) return run<4>(a, queue);
  run<2>(a, queue);
}

}  // namespace dsa
