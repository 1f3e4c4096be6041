// kernels/kda/kda.cu: the recurrence. The columns of a state do not meet: a warp owns 16 of them and keeps its part of the
// state in registers from the first token to the last.
//
// Lane 4 r + c holds columns 4 c .. 4 c + 3 of kRows rows from row kRows r on. With u = beta (v - S^T k) the output is
// o = (S + k u^T)^T q = S^T q + (k . q) u, so that both products with the decayed state are summed in one go.
#include "base/status.h"
#include "kernels/common/cuda.cuh"
#include "kernels/kda/kda.h"

namespace dsa {
namespace {

constexpr int kColumns = 16;  // of a warp

// The sum over the lanes that hold the same columns.
__device__ float row_sum(float x) {
  for (int lanes = 4; lanes < kWarp; lanes *= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

// Grid (ceil(v_dim / kColumns), heads, num_sequences), one warp a block.
// Reads and writes the state once; q, k and g once per block.
template <int kRows>
__global__ void __launch_bounds__(kWarp) kda_kernel(const __grid_constant__ KdaArgs a) {
  begin_kernel();
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const int h = blockIdx.y, d_begin = threadIdx.x / 4 * kRows,
            j = blockIdx.x * kColumns + threadIdx.x % 4 * 4;
  const int rows = max(0, min(kRows, a.k_dim - d_begin)), columns = max(0, min(4, a.v_dim - j));
  const int64_t corner = (int64_t(h) * a.k_dim + d_begin) * a.v_dim + j;
  const bool whole = j + 4 <= a.v_dim && a.v_dim % 4 == 0;  // ptxas 13.0 gets `columns == 4` wrong

  float s[kRows][4];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float* at = sequence.state + corner + int64_t(i) * a.v_dim;
    if (i < rows && whole) {
      const float4 row = __ldcs(reinterpret_cast<const float4*>(at));
      s[i][0] = row.x, s[i][1] = row.y, s[i][2] = row.z, s[i][3] = row.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][c] = i < rows && c < columns ? at[c] : 0;
    }
  }

  for (int64_t t = sequence.row_begin; t < int64_t(sequence.row_begin) + sequence.rows; ++t) {
    const float* q = a.q + t * a.q_stride + h * a.k_dim + d_begin;
    const float* k = a.k + t * a.k_stride + h * a.k_dim + d_begin;
    const float* g = a.g + (t * a.heads + h) * a.k_dim + d_begin;
    float keys[kRows], remembered[4] = {}, read[4] = {}, both = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float decay = i < rows ? expf(g[i]) : 0, query = i < rows ? q[i] : 0;
      keys[i] = i < rows ? k[i] : 0;
      both += keys[i] * query;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[i][c] *= decay;
        remembered[c] += s[i][c] * keys[i];
        read[c] += s[i][c] * query;
      }
    }
    both = row_sum(both);
    const float beta = a.beta[t * a.heads + h];
    const float* v = a.v + t * a.v_stride + int64_t(h) * a.v_dim + j;
    float* o = a.o + (t * a.heads + h) * a.v_dim + j;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float u = beta * ((c < columns ? v[c] : 0) - row_sum(remembered[c]));
      const float y = row_sum(read[c]) + both * u;
      if (threadIdx.x < 4 && c < columns) o[c] = y;
#pragma unroll
      for (int i = 0; i < kRows; ++i) s[i][c] += keys[i] * u;
    }
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    float* at = sequence.next_state + corner + int64_t(i) * a.v_dim;
    if (i < rows && whole) {
      __stcs(reinterpret_cast<float4*>(at), float4{s[i][0], s[i][1], s[i][2], s[i][3]});
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (i < rows && c < columns) at[c] = s[i][c];
    }
  }
}

void recurrence(const KdaArgs& a, Queue& queue) {
  DSA_ASSERT(a.k_dim <= 512);
  const auto kernel = a.k_dim <= 32    ? kda_kernel<4>
                      : a.k_dim <= 64  ? kda_kernel<8>
                      : a.k_dim <= 128 ? kda_kernel<16>
                      : a.k_dim <= 256 ? kda_kernel<32>
                                       : kda_kernel<64>;
  const dim3 grid(unsigned(ceil_div(a.v_dim, kColumns)), unsigned(a.heads), unsigned(a.num_sequences));
  launch(queue, grid, kWarp, 0, kernel, a);
}

}  // namespace

void cuda::kda_step(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }
void cuda::kda_chunk(const KdaArgs& a, Queue& queue) { recurrence(a, queue); }

}  // namespace dsa
