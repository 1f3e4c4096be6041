// kernels/pool_keys/pool_keys.cu: blocks go round the pools of each sequence, one thread a channel.
#include "kernels/common/cuda.cuh"
#include "kernels/pool_keys/pool_keys.h"

namespace dsa {
namespace {

// Key and gate of a token of the sequence: of this step, or of the open pool that the last one left.
struct Token {
  const float *key, *gate;
};

__device__ Token token_of(const PoolKeysArgs& a, const PoolSequence& s, int position) {
  if (position >= s.position) {
    const int64_t row = s.row_begin + position - s.position;
    return {a.keys + row * a.keys_stride, a.gates + row * a.gates_stride};
  }
  const float* row = s.open + int64_t(position % a.group) * 2 * a.dim;
  return {row, row + a.dim};
}

constexpr int kBlocks = 64;  // of one sequence

// Grid (kBlocks, num_sequences).
__global__ void __launch_bounds__(1024) pool_keys_kernel(const __grid_constant__ PoolKeysArgs a) {
  begin_kernel();
  const PoolSequence s = a.sequences[blockIdx.y];
  const int end = s.position + s.rows, complete = end / a.group;
  for (int p = s.position / a.group + blockIdx.x; p < complete; p += gridDim.x) {
    const CacheRow out = a.pools.row(blockIdx.y, p);
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      const auto logit = [&](int j) {
        return token_of(a, s, p * a.group + j).gate[d] + a.places[int64_t(j) * a.dim + d];
      };
      float largest = -INFINITY, total = 0, sum = 0;
      for (int j = 0; j < a.group; ++j) largest = fmaxf(largest, logit(j));
      for (int j = 0; j < a.group; ++j) {
        const float weight = expf(logit(j) - largest);
        total += weight;
        sum += weight * token_of(a, s, p * a.group + j).key[d];
      }
      out.set(d, sum / total);
    }
  }
  if (blockIdx.x > 0) return;

  for (int position = complete * a.group; position < end; ++position) {
    const Token token = token_of(a, s, position);
    float* row = s.next_open + int64_t(position % a.group) * 2 * a.dim;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x)
      row[d] = token.key[d], row[a.dim + d] = token.gate[d];
  }
  for (int r = threadIdx.x; r < s.rows; r += blockDim.x)
    a.pools_visible[s.row_begin + r] = (s.position + r + 1) / a.group;
}

}  // namespace

void cuda::pool_keys(const PoolKeysArgs& a, Queue& queue) {
  launch(queue, dim3(kBlocks, unsigned(a.num_sequences)), unsigned(threads_for(a.dim)), 0, pool_keys_kernel,
         a);
}

}  // namespace dsa
