// kernels/common/best.cuh: a warp picks the best of many values, again and again.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

// The index in [0, n) of the largest value, the lower index of equals; -1 if all are NaN. The same on every lane.
__device__ inline int best_of(const float* values, int n, int lane) {
  int best = -1;
  float largest = 0;
  for (int i = lane; i < n; i += kWarp)
    if (values[i] == values[i] && (best < 0 || values[i] > largest)) best = i, largest = values[i];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const int other = __shfl_xor_sync(kAllLanes, best, lanes);
    const float value = __shfl_xor_sync(kAllLanes, largest, lanes);
    if (other >= 0 && (best < 0 || value > largest || (value == largest && other < best)))
      best = other, largest = value;
  }
  return best;
}

// Fills the rest of ids, from `chosen` on, with the lowest indices that are not yet among them. One thread.
__device__ inline void complete_with_lowest(int32_t* ids, int chosen, int top_k) {
  for (int e = 0; chosen < top_k; ++e) {
    bool free = true;
    for (int slot = 0; slot < chosen; ++slot) free = free && ids[slot] != e;
    if (free) ids[chosen++] = e;
  }
}

}  // namespace dsa
