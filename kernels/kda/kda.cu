// kernels/kda/kda.cu: the recurrence. A block keeps the state of a head in registers from the first token to the last; see
// common/kda_tile.cuh.
#include "base/status.h"
#include "kernels/common/kda_tile.cuh"
#include "kernels/kda/kda.h"

namespace dsa {
namespace {

// Grid (ceil(v_dim / kKdaColumns), heads, num_sequences). Reads and writes the state once.
template <int kRows>
__global__ void __launch_bounds__(kKdaThreads, kRows <= 16 ? 2 : 1)
    kda_kernel(const __grid_constant__ KdaArgs a) {
  begin_kernel();
  __shared__ KdaShared<kRows> shared;
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const int h = blockIdx.y;
  KdaTile<kRows> tile(h, a.k_dim, a.v_dim);
  tile.read(sequence.state);

  for (int64_t t = sequence.row_begin; t < int64_t(sequence.row_begin) + sequence.rows; ++t) {
    const float *q = a.q + t * a.q_stride + h * a.k_dim, *k = a.k + t * a.k_stride + h * a.k_dim,
                *g = a.g + (t * a.heads + h) * a.k_dim;
    const float beta = a.beta[t * a.heads + h];
    __syncthreads();  // the token before has been read
    for (int d = threadIdx.x; d < kKdaWarps * kRows; d += kKdaThreads) {
      const bool exists = d < a.k_dim;
      shared.q[d] = exists ? q[d] : 0;
      shared.k[d] = exists ? k[d] : 0;
      shared.decay[d] = exists ? expf(g[d]) : 0;
    }
    __syncthreads();
    float o[4];
    tile.step(shared, a.v + t * a.v_stride + int64_t(h) * a.v_dim, beta, o);
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
  const dim3 grid(unsigned(ceil_div(a.v_dim, kKdaColumns)), unsigned(a.heads), unsigned(a.num_sequences));
  launch(queue, grid, kKdaThreads, 0, kernel, a);
}

}  // namespace

void cuda::kda_step(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }
void cuda::kda_by_token(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }

}  // namespace dsa
