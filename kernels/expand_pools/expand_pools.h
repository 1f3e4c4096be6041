// kernels/expand_pools/expand_pools.h: selected pools become the positions of their tokens.
//
//   selected[t] = { group p + j : p in pools[t], j < group }, then with `tail` also the positions of the pool that is
//                 still open at t: group * floor(visible[t] / group) to visible[t] - 1. Unused slots are -1.
//
// In the order of the pools; ascending pools give ascending positions.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct ExpandPoolsArgs {
  const int32_t* pools;    // [tokens, top_k]  -1: unused slot
  const int32_t* visible;  // [tokens]  positions that each token may see
  int32_t* selected;       // [tokens, (top_k + 1) * group - 1]  output
  int64_t tokens;
  int top_k, group;
  bool tail;

  int slots() const { return (top_k + 1) * group - 1; }
};
DSA_DECLARE_KERNEL(expand_pools, ExpandPoolsArgs);

}  // namespace dsa
