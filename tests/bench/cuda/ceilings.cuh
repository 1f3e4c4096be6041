// tests/bench/cuda/ceilings.cuh: what the memory of a GPU can do.
#pragma once

#include <cstddef>

#include "kernels/common/cuda.cuh"

namespace dsa::bench {

// Grid   two blocks of 1,024 threads for each multiprocessor; four loads of each thread are on their way at once.
inline __global__ void __launch_bounds__(1024) read_kernel(const uint4* data, size_t count, uint4* out) {
  uint4 sum = {};
  for (size_t i = blockIdx.x * size_t{1024} + threadIdx.x; i < count; i += size_t(gridDim.x) * 1024 * 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const size_t at = i + size_t(j) * gridDim.x * 1024;
      if (at < count) {
        const uint4 v = __ldcs(data + at);
        sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
      }
    }
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678) *out = sum;
}

}  // namespace dsa::bench
