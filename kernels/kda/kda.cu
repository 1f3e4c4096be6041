// kernels/kda/kda.cu: the recurrence. The columns of a state do not meet: a warp owns 16 of them and keeps its part of the
// state in registers from the first token to the last. The warps of a block share a head, its keys and its queries.
#include <algorithm>

#include "base/status.h"
#include "kernels/common/kda_tile.cuh"
#include "kernels/kda/kda.h"

namespace dsa {
namespace {

// Grid (ceil(v_dim / 128), heads, num_sequences). Reads and writes the state once.
template <int kRows>
__global__ void __launch_bounds__(kKdaThreads, kRows <= 16 ? 2 : 1)
    kda_kernel(const __grid_constant__ KdaArgs a) {
  begin_kernel();
  __shared__ KdaVectors<kRows> vectors;
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const int h = blockIdx.y;
  KdaTile<kRows> tile(h, a.k_dim, a.v_dim);
  tile.read(sequence.state);

  for (int64_t t = sequence.row_begin; t < int64_t(sequence.row_begin) + sequence.rows; ++t) {
    const float *q = a.q + t * a.q_stride + h * a.k_dim, *k = a.k + t * a.k_stride + h * a.k_dim,
                *g = a.g + (t * a.heads + h) * a.k_dim;
    __syncthreads();  // the token before has been read
    for (int d = threadIdx.x; d < 8 * kRows; d += blockDim.x) {
      const bool exists = d < a.k_dim;
      vectors.set(d, exists ? q[d] : 0, exists ? k[d] : 0, exists ? expf(g[d]) : 0);
    }
    __syncthreads();
    float o[4];
    tile.step(vectors, a.v + t * a.v_stride + int64_t(h) * a.v_dim, a.beta[t * a.heads + h], o);
    tile.put(o, a.o + (t * a.heads + h) * a.v_dim);
  }
  tile.write(sequence.next_state);
}

void recurrence(const KdaArgs& a, Queue& queue) {
  DSA_ASSERT(a.k_dim <= 512);
  const auto kernel = a.k_dim <= 32    ? kda_kernel<4>
                      : a.k_dim <= 64  ? kda_kernel<8>
                      : a.k_dim <= 128 ? kda_kernel<16>
                      : a.k_dim <= 256 ? kda_kernel<32>
                                       : kda_kernel<64>;
  const int64_t warps = ceil_div(a.v_dim, kKdaColumns), of_block = std::min<int64_t>(warps, kKdaWarps);
  const dim3 grid(unsigned(ceil_div(warps, of_block)), unsigned(a.heads), unsigned(a.num_sequences));
  launch(queue, grid, unsigned(of_block * kWarp), 0, kernel, a);
}

}  // namespace

void cuda::kda_step(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }
void cuda::kda_by_token(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }

}  // namespace dsa
