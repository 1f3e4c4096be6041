// kernels/short_conv/short_conv.cu: one thread a channel; blocks go round the tokens of each sequence.
#include "kernels/common/cuda.cuh"
#include "kernels/short_conv/short_conv.h"

namespace dsa {
namespace {

constexpr int kThreads = 128, kBlocks = 64;  // blocks of one sequence and 128 channels

// Grid (ceil(channels / kThreads), kBlocks, num_sequences).
__global__ void __launch_bounds__(kThreads) short_conv_kernel(const __grid_constant__ ShortConvArgs a) {
  begin_kernel();
  const int c = blockIdx.x * kThreads + threadIdx.x, history = a.width - 1;
  if (c >= a.channels) return;
  const ShortConvSequence sequence = a.sequences[blockIdx.z];
  // Input t of this step; the state holds inputs -history .. -1.
  const auto u = [&](int t) {
    return t < 0 ? sequence.state[int64_t(t + history) * a.channels + c]
                 : a.x[(int64_t(sequence.row_begin) + t) * a.x_stride + c];
  };

  for (int t = blockIdx.y; t < sequence.rows; t += gridDim.y) {
    float y = 0;
    for (int j = 0; j < a.width; ++j) y += a.weight[int64_t(c) * a.width + j] * u(t - history + j);
    a.y[(int64_t(sequence.row_begin) + t) * a.y_stride + c] = y * sigmoid(y);
  }
  for (int j = blockIdx.y; j < history; j += gridDim.y)
    sequence.next_state[int64_t(j) * a.channels + c] = u(sequence.rows - history + j);
}

}  // namespace

void cuda::short_conv(const ShortConvArgs& a, Queue& queue) {
  const dim3 grid(unsigned(ceil_div(a.channels, kThreads)), kBlocks, unsigned(a.num_sequences));
  launch(queue, grid, kThreads, 0, short_conv_kernel, a);
}

}  // namespace dsa
