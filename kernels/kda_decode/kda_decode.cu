// kernels/kda_decode/kda_decode.cu: one block for a head of a sequence. Its state is on the way while the convolution and the
// gates are computed; see common/kda_tile.cuh.
#include "base/status.h"
#include "kernels/common/kda_tile.cuh"
#include "kernels/kda_decode/kda_decode.h"

namespace dsa {
namespace {

constexpr int kWidthMax = 8;  // of the convolution

// log(1 + e^x), which for large x is x.
__device__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Grid (1, heads, num_sequences). Reads and writes the states once.
template <int kRows>
__global__ void __launch_bounds__(kKdaThreads, 2) kda_decode_kernel(const __grid_constant__ KdaDecodeArgs a) {
  start_next_kernel();
  __shared__ KdaShared<kRows> shared;
  __shared__ float qkv[3][kKdaDecodeDimMax], out[kKdaDecodeDimMax], factors[2];
  const int h = blockIdx.y, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t channels = int64_t(a.heads) * a.dim;
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const ShortConvSequence conv = a.convs[blockIdx.z];
  const int64_t row = sequence.row_begin, of_head = (row * a.heads + h) * a.dim;
  KdaTile<kRows> tile(h, a.dim, a.dim);
  tile.read(sequence.state);  // which the step before has written
  wait_for_kernel_before();

  // Decay, and what the output will be multiplied by.
  const float rate = expf(a.a_log[h]), beta = sigmoid(a.b[row * a.heads + h]);
  for (int d = threadIdx.x; d < kKdaWarps * kRows; d += kKdaThreads) {
    float decay = 0;
    if (d < a.dim) {
      const float z = a.z[of_head + d] + a.dt_bias[h * a.dim + d];
      decay = expf(a.lower_bound == 0 ? -rate * softplus(z) : a.lower_bound * sigmoid(rate * z));
      out[d] = a.norm[d] * sigmoid(a.gate[of_head + d]);
    }
    shared.decay[d] = decay;
  }

  // Convolution and SiLU of the channels of this head.
  for (int i = threadIdx.x; i < 3 * a.dim; i += kKdaThreads) {
    const int part = i / a.dim, d = i % a.dim, history = a.width - 1;
    const int64_t c = part * channels + h * a.dim + d;
    const float x = a.qkv[row * a.qkv_stride + c];
    float u[kWidthMax - 1], y = 0;
#pragma unroll
    for (int j = 0; j < kWidthMax - 1; ++j) u[j] = j < history ? conv.state[j * 3 * channels + c] : 0;
#pragma unroll
    for (int j = 0; j < kWidthMax - 1; ++j)
      if (j < history) y += a.conv_weight[c * a.width + j] * u[j];
    y += a.conv_weight[c * a.width + history] * x;
#pragma unroll
    for (int j = 1; j < kWidthMax - 1; ++j)
      if (j < history) conv.next_state[(j - 1) * 3 * channels + c] = u[j];
    if (history > 0) conv.next_state[(history - 1) * 3 * channels + c] = x;
    qkv[part][d] = y * sigmoid(y);
  }
  __syncthreads();

  // Lengths of query and key, one warp each.
  if (warp < 2) {
    float sum = 0;
    for (int d = lane; d < a.dim; d += kWarp) sum += qkv[warp][d] * qkv[warp][d];
    sum = warp_sum(sum);
    if (lane == 0) factors[warp] = (warp == 0 ? 1 / sqrtf(float(a.dim)) : 1.f) / sqrtf(sum + 1e-6f);
  }
  __syncthreads();
  for (int d = threadIdx.x; d < kKdaWarps * kRows; d += kKdaThreads) {
    shared.q[d] = d < a.dim ? qkv[0][d] * factors[0] : 0;
    shared.k[d] = d < a.dim ? qkv[1][d] * factors[1] : 0;
  }
  __syncthreads();

  float o[4];
  tile.step(shared, qkv[2], beta, o);
  tile.write(sequence.next_state);

  // The norm of the head, and its gate; every warp has all columns.
  float sum = 0;
#pragma unroll
  for (int c = 0; c < 4; ++c) sum += tile.exists(c) ? o[c] * o[c] : 0;
  const float factor = 1 / sqrtf(warp_sum(sum) / a.dim + a.eps);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int d = tile.first_column() + c;
    if (tile.exists(c)) o[c] *= factor * out[d];
  }
  tile.put(o, a.o + of_head);
}

}  // namespace

void cuda::kda_decode(const KdaDecodeArgs& a, Queue& queue) {
  DSA_ASSERT(a.dim <= kKdaDecodeDimMax);
  const auto kernel = a.dim <= 32   ? kda_decode_kernel<4>
                      : a.dim <= 64 ? kda_decode_kernel<8>
                                    : kda_decode_kernel<16>;
  const dim3 grid(1, unsigned(a.heads), unsigned(a.num_sequences));
  launch(queue, grid, kKdaThreads, 0, kernel, a);
}

}  // namespace dsa
