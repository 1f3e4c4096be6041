// kernels/common/fp8_products.cuh: products of FP8 experts for GPUs whose matrix units have no version of their own here: one
// thread an output, a tile of 16 rows and 64 outputs a block.
#pragma once

#include "kernels/common/cuda.cuh"
#include "kernels/common/fp8_tiles.h"

namespace dsa {

constexpr int kFp8Rows = 16, kFp8Outputs = 64, kFp8RowsOfThread = 4;
constexpr int kFp8Threads = kFp8Rows / kFp8RowsOfThread * kFp8Outputs;

// For a grid (ceil(out_dim / kFp8Outputs), num_groups) of kFp8Threads threads. weight(group, o, k) is that of an output and a
// column, o < out_dim; those behind in_dim are 0.
template <class Args, class Weight>
__device__ void fp8_products(const Args& a, const Weight& weight) {
  __shared__ float x[kFp8Rows][kFp8Stretch], w[kFp8Outputs][kFp8Stretch + 1];
  const auto group = a.groups[blockIdx.y];
  const int o = threadIdx.x % kFp8Outputs, r_first = threadIdx.x / kFp8Outputs * kFp8RowsOfThread;
  const int64_t o_begin = int64_t(blockIdx.x) * kFp8Outputs;
  for (int64_t begin = group.range[0]; begin < group.range[1]; begin += kFp8Rows) {
    float sums[kFp8RowsOfThread] = {};
    for (int k = 0; k < a.in_dim; k += kFp8Stretch) {
      __syncthreads();
      for (int i = threadIdx.x; i < kFp8Rows * kFp8Stretch; i += blockDim.x) {
        const int64_t r = begin + i / kFp8Stretch;
        x[i / kFp8Stretch][i % kFp8Stretch] =
            r < group.range[1] ? e4m3_to_f32(a.x[fp8_tile_offset(a.rows, r, k + i % kFp8Stretch)]) : 0.f;
      }
      for (int i = threadIdx.x; i < kFp8Outputs * kFp8Stretch; i += blockDim.x) {
        const int64_t at = o_begin + i / kFp8Stretch;
        w[i / kFp8Stretch][i % kFp8Stretch] =
            at < a.out_dim ? weight(group, at, int64_t(k + i % kFp8Stretch)) : 0.f;
      }
      __syncthreads();
      for (int i = 0; i < kFp8Stretch; ++i)
        for (int r = 0; r < kFp8RowsOfThread; ++r) sums[r] += w[o][i] * x[r_first + r][i];
    }
    for (int i = 0; i < kFp8RowsOfThread; ++i) {
      const int64_t r = begin + r_first + i;
      if (r < group.range[1] && o_begin + o < a.out_dim)
        group.y[r * a.y_stride + o_begin + o] =
            ldexpf(sums[i] * a.x_scales[r], group.exponents[o_begin + o] - 127);
    }
  }
}

}  // namespace dsa
