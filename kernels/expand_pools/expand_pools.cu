// kernels/expand_pools/expand_pools.cu: one warp a token; each lane places one pool behind those of the lanes below it.
#include "kernels/common/cuda.cuh"
#include "kernels/expand_pools/expand_pools.h"

namespace dsa {

void cuda::expand_pools(const ExpandPoolsArgs& a, Queue& queue) {
  const int slots = a.slots();
  each_warp(queue, a.tokens, [a, slots] __device__(int64_t t, int lane) {
    const int32_t* pools = a.pools + t * a.top_k;
    int32_t* out = a.selected + t * slots;
    int used = 0;
    for (int begin = 0; begin < a.top_k; begin += kWarp) {
      const int32_t pool = begin + lane < a.top_k ? pools[begin + lane] : -1;
      const unsigned taken = __ballot_sync(kAllLanes, pool >= 0);
      int at = used + __popc(taken & ((1u << lane) - 1)) * a.group;
      for (int j = 0; pool >= 0 && j < a.group; ++j) out[at++] = pool * a.group + j;
      used += __popc(taken) * a.group;
    }
    if (a.tail) {
      const int32_t begin = a.visible[t] / a.group * a.group, rest = a.visible[t] - begin;
      for (int j = lane; j < rest; j += kWarp) out[used + j] = begin + j;
      used += rest;
    }
    for (int j = used + lane; j < slots; j += kWarp) out[j] = -1;
  });
}

}  // namespace dsa
