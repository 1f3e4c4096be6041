// kernels/expand_pools/expand_pools_ref.cc: plain loops; tokens go to the threads.
#include <algorithm>

#include "kernels/expand_pools/expand_pools.h"

namespace dsa {

void ref::expand_pools(const ExpandPoolsArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int32_t* pools = a.pools + t * a.top_k;
    int32_t *out = a.selected + t * a.slots(), *end = out + a.slots();
    for (int i = 0; i < a.top_k; ++i)
      for (int j = 0; pools[i] >= 0 && j < a.group; ++j) *out++ = pools[i] * a.group + j;
    if (a.tail)
      for (int32_t p = a.visible[t] / a.group * a.group; p < a.visible[t]; ++p) *out++ = p;
    std::fill(out, end, -1);
  });
}

}  // namespace dsa
