// kernels/index_scores/index_scores.cu: a warp scores one position; its lanes split dim.
#include "kernels/common/cuda.cuh"
#include "kernels/index_scores/index_scores.h"

namespace dsa {
namespace {

constexpr int kWarps = 8, kPositions = 64;  // positions of a block

// Grid   (ceil(context / kPositions), tokens).
// Shared q of this token and its head weights, heads * (dim + 1) floats: 32 KiB at 64 x 128.
__global__ void __launch_bounds__(kWarps* kWarp)
    index_scores_kernel(const __grid_constant__ IndexScoresArgs a) {
  float* q = dynamic_shared<float>();  // [heads, dim]
  float* head_weights = q + a.heads * a.dim;
  begin_kernel();
  const int64_t t = blockIdx.y;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, sequence = a.sequence_of[t];
  for (int i = threadIdx.x; i < a.heads * a.dim; i += blockDim.x) q[i] = a.q_row(t, 0)[i];
  for (int h = threadIdx.x; h < a.heads; h += blockDim.x) head_weights[h] = a.head_weights[t * a.heads + h];
  __syncthreads();

  const int begin = blockIdx.x * kPositions, end = min(begin + kPositions, a.context);
  for (int p = begin + warp; p < end; p += kWarps) {
    const bool seen = p < a.visible[t];
    float score = seen ? 0.f : -INFINITY;
    const auto add_heads = [&](const auto* values) {
      for (int h = 0; h < a.heads; ++h) {
        float dot = 0;
        for (int d = lane; d < a.dim; d += kWarp) dot += q[h * a.dim + d] * to_f32(values[d]);
        dot = warp_sum(dot);
        score += head_weights[h] * (dot < 0 ? 0 : dot);  // keeps NaN
      }
    };
    if (seen && a.k.format == CacheFormat::bf16) add_heads(a.k.values<const bf16>(sequence, p));
    if (seen && a.k.format == CacheFormat::f32) add_heads(a.k.values<const float>(sequence, p));
    if (lane == 0) a.scores[t * a.scores_stride + p] = score;
  }
}

}  // namespace

void cuda::index_scores(const IndexScoresArgs& a, Queue& queue) {
  const dim3 grid(unsigned(ceil_div(a.context, kPositions)), unsigned(a.tokens));
  launch(queue, grid, kWarps * kWarp, sizeof(float) * size_t(a.heads) * (a.dim + 1), index_scores_kernel, a);
}

}  // namespace dsa
