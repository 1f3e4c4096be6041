// kernels/mxfp4_expert_linear/mxfp4_expert_linear.cu: as fp8_expert_linear.cu, with weights expanded into shared memory.
#include "kernels/common/cuda.cuh"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"

namespace dsa {
namespace {

constexpr int kRows = 16, kOutputs = 64, kRowsOfThread = 4;

// Grid (ceil(out_dim / kOutputs), num_groups).
__global__ void __launch_bounds__(kRows / kRowsOfThread * kOutputs)
    mxfp4_expert_linear_kernel(const __grid_constant__ Mxfp4ExpertLinearArgs a) {
  __shared__ float x[kRows][kFp8Stretch], w[kOutputs][kFp8Stretch + 1];
  begin_kernel();
  const Mxfp4ExpertLinearGroup group = a.groups[blockIdx.y];
  const int o = threadIdx.x % kOutputs, r_first = threadIdx.x / kOutputs * kRowsOfThread;
  const int64_t o_begin = int64_t(blockIdx.x) * kOutputs;
  for (int64_t begin = group.range[0]; begin < group.range[1]; begin += kRows) {
    float sums[kRowsOfThread] = {};
    for (int k = 0; k < a.in_dim; k += kFp8Stretch) {
      __syncthreads();
      for (int i = threadIdx.x; i < kRows * kFp8Stretch; i += blockDim.x) {
        const int64_t r = begin + i / kFp8Stretch;
        x[i / kFp8Stretch][i % kFp8Stretch] =
            r < group.range[1] ? e4m3_to_f32(a.x[fp8_tile_offset(a.rows, r, k + i % kFp8Stretch)]) : 0.f;
      }
      for (int i = threadIdx.x; i < kOutputs * kFp8Stretch; i += blockDim.x) {
        const int64_t at = o_begin + i / kFp8Stretch, column = k + i % kFp8Stretch;
        float value = 0;
        if (at < a.out_dim && column < a.in_dim) {
          const uint8_t byte = group.blocks[(at * a.in_dim + column) / 2];
          const int shift = group.scales[(at * a.in_dim + column) / kMxfp4Block] - group.exponents[at];
          value = e4m3_to_f32(f32_to_e4m3(ldexpf(e2m1_to_f32(column % 2 ? byte >> 4 : byte & 15), shift)));
        }
        w[i / kFp8Stretch][i % kFp8Stretch] = value;
      }
      __syncthreads();
      for (int i = 0; i < kFp8Stretch; ++i)
        for (int r = 0; r < kRowsOfThread; ++r) sums[r] += w[o][i] * x[r_first + r][i];
    }
    for (int i = 0; i < kRowsOfThread; ++i) {
      const int64_t r = begin + r_first + i;
      if (r < group.range[1] && o_begin + o < a.out_dim)
        group.y[r * a.y_stride + o_begin + o] =
            ldexpf(sums[i] * a.x_scales[r], group.exponents[o_begin + o] - 127);
    }
  }
}

}  // namespace

void cuda::mxfp4_expert_linear(const Mxfp4ExpertLinearArgs& a, Queue& queue) {
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, kOutputs)), unsigned(a.num_groups)),
         kRows / kRowsOfThread * kOutputs, 0, mxfp4_expert_linear_kernel, a);
}

}  // namespace dsa
