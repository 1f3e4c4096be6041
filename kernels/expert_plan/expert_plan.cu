// kernels/expert_plan/expert_plan.cu: one block an expert. It counts the pairs of the experts below its own, which is
// where its rows begin, then hands them out in rising order of the pair.
#include "kernels/common/cuda.cuh"
#include "kernels/expert_plan/expert_plan.h"

namespace dsa {

constexpr int kThreads = 256;

void cuda::expert_plan(const ExpertPlanArgs& a, Queue& queue) {
  each_block(queue, a.experts, kThreads, [a] __device__(int64_t e) {
    __shared__ int counts[kThreads / kWarp];
    const int num_pairs = a.tokens * a.top_k, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;

    int below = 0;
    for (int pair = threadIdx.x; pair < num_pairs; pair += kThreads) below += a.expert_ids[pair] < e;
    below = __reduce_add_sync(kAllLanes, below);
    if (lane == 0) counts[warp] = below;
    __syncthreads();
    int row = 0;
    for (int i = 0; i < kThreads / kWarp; ++i) row += counts[i];
    if (threadIdx.x == 0) a.offsets[e] = row;

    for (int begin = 0; begin < num_pairs; begin += kThreads) {
      const int pair = begin + int(threadIdx.x);
      const bool mine = pair < num_pairs && a.expert_ids[pair] == e;
      const BlockCount found = block_count<kThreads>(mine);
      if (mine) {
        a.pairs[row + found.before] = pair;
        a.rows[pair] = row + found.before;
      }
      row += found.total;
    }
    if (e == a.experts - 1 && threadIdx.x == 0) a.offsets[a.experts] = row;
  });
}

}  // namespace dsa
