// kernels/kda_decode/kda_decode.cu: one block for a head of a sequence. The state is on its way before the projections of
// the token are known.
#include "base/status.h"
#include "kernels/common/kda_tile.cuh"
#include "kernels/kda_decode/kda_decode.h"

namespace dsa {
namespace {

// log(1 + e^x), which for large x is x.
__device__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Grid (1, heads, num_sequences). Reads and writes the states once.
template <int kRows>
__global__ void __launch_bounds__(kKdaThreads, 2) kda_decode_kernel(const __grid_constant__ KdaDecodeArgs a) {
  start_next_kernel();
  __shared__ KdaVectors<kRows> vectors;
  __shared__ float qkv[3][kKdaDecodeDimMax], squares[kKdaWarps], factors[2];
  const int h = blockIdx.y, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp,
            warps = blockDim.x / kWarp;
  const int64_t channels = int64_t(a.heads) * a.dim;
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const ShortConvSequence conv = a.convs[blockIdx.z];
  const int64_t row = sequence.row_begin, of_head = (row * a.heads + h) * a.dim;
  KdaTile<kRows> tile(h, a.dim, a.dim);
  tile.read(sequence.state);
  wait_for_kernel_before();

  // Convolution and SiLU of the channels of this head.
  for (int i = threadIdx.x; i < 3 * a.dim; i += blockDim.x) {
    const int part = i / a.dim, d = i % a.dim, history = a.width - 1;
    const int64_t c = part * channels + h * a.dim + d;
    const float x = a.qkv[row * a.qkv_stride + c];
    float y = 0;
    for (int j = 0; j < history; ++j) {
      const float u = conv.state[j * 3 * channels + c];
      y += a.conv_weight[c * a.width + j] * u;
      if (j > 0) conv.next_state[(j - 1) * 3 * channels + c] = u;
    }
    y += a.conv_weight[c * a.width + history] * x;
    if (history > 0) conv.next_state[(history - 1) * 3 * channels + c] = x;
    qkv[part][d] = y * sigmoid(y);
  }
  __syncthreads();

  // Lengths of query and key, one warp each; the other numbers of the gate.
  for (int part = warp; part < 2; part += warps) {
    float sum = 0;
    for (int d = lane; d < a.dim; d += kWarp) sum += qkv[part][d] * qkv[part][d];
    sum = warp_sum(sum);
    if (lane == 0) factors[part] = (part == 0 ? 1 / sqrtf(float(a.dim)) : 1.f) / sqrtf(sum + 1e-6f);
  }
  __syncthreads();
  const float rate = expf(a.a_log[h]), beta = sigmoid(a.b[row * a.heads + h]);
  for (int d = threadIdx.x; d < 8 * kRows; d += blockDim.x) {
    float q = 0, k = 0, decay = 0;
    if (d < a.dim) {
      const float z = a.z[of_head + d] + a.dt_bias[h * a.dim + d];
      const float g = a.lower_bound == 0 ? -rate * softplus(z) : a.lower_bound * sigmoid(rate * z);
      q = qkv[0][d] * factors[0], k = qkv[1][d] * factors[1], decay = expf(g);
    }
    vectors.set(d, q, k, decay);
  }
  __syncthreads();

  float o[4];
  tile.step(vectors, qkv[2], beta, o);
  tile.write(sequence.next_state);

  // The norm of the head, and its gate.
  float sum = 0;
  for (int c = 0; c < 4; ++c) sum += c < tile.columns() ? o[c] * o[c] : 0;
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lane == 0) squares[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < warps; ++i) sum += squares[i];
  const float factor = 1 / sqrtf(sum / a.dim + a.eps);
  for (int c = 0; c < 4; ++c) {
    const int d = tile.first_column() + c;
    if (c < tile.columns()) o[c] = o[c] * factor * a.norm[d] * sigmoid(a.gate[of_head + d]);
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
  launch(queue, grid, unsigned(ceil_div(a.dim, kKdaColumns) * kWarp), 0, kernel, a);
}

}  // namespace dsa
