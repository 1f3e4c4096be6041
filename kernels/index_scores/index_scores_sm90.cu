// kernels/index_scores/index_scores_sm90.cu: wgmma on tiles of 64 keys x the heads of one token, for keys kept as bf16.
//
// A block holds the queries of kTokens tokens and goes over a stretch of keys. Each of its warpgroups takes every
// kGroups-th tile, copies the next ones while it multiplies, and adds up the heads in registers. Keys that tokens share
// are read once for all of them.
#include "kernels/common/attention_sm90.cuh"
#include "kernels/index_scores/index_scores.h"

namespace dsa {
namespace {

constexpr int kDim = 128, kHalves = kDim / 64;    // tiles side by side
constexpr int kKeysBytes = kHalves * kTileBytes;  // of a tile of keys
constexpr int kTilesMin = 8,
              kBlocksOfProcessor = 8;  // tiles of a block at least; blocks, if there is enough to do

// A product takes the heads of kAtOnce tokens.
template <int kHeads, int kAtOnce, int kTokens, int kGroups, int kStages>
struct Shape {
  static constexpr int heads = kHeads, at_once = kAtOnce, tokens = kTokens, groups = kGroups,
                       stages = kStages;
  static constexpr int q_rows = kHeads * kAtOnce, q_bytes = q_rows * kDim * 2;  // of a product
  static constexpr size_t shared_bytes =
      size_t(kTokens / kAtOnce) * (q_bytes + q_rows * sizeof(float)) + size_t(kGroups) * kStages * kKeysBytes;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// max(0, x); keeps NaN.
__device__ float relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// The tile of 64 keys that begins at `p`, those from `end` on left out.
__device__ void copy_keys(const PagedRows& k, int sequence, int p, int end, uint8_t* keys) {
  const int thread = threadIdx.x % kGroupThreads, c = thread % 16;
  uint8_t* to = keys + c / 8 * kTileBytes;
  const char* page = k.page_rows == kPageSize ? k.values<const char>(sequence, p) : nullptr;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int r = thread / 16 + 8 * i;
    const bool exists = p + r < end;
    const char* row = page ? page + r * (kDim * 2) : k.values<const char>(sequence, exists ? p + r : p);
    copy_async(to + piece(r, c % 8), row + c * 16, exists);
  }
}
#endif

// Grid (stretches of `tiles` tiles, ceil(tokens / kTokens)). Reads keys once per block, queries once per stretch.
template <class S>
__global__ void __launch_bounds__(S::groups* kGroupThreads)
    index_scores_kernel(const __grid_constant__ IndexScoresArgs a, int tiles) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* q = shared_tiles();                                  // [products, halves, q_rows, 64]
  uint8_t* all_keys = q + S::tokens / S::at_once * S::q_bytes;  // [groups, stages, halves, 64, 64]
  auto* weights = reinterpret_cast<float*>(all_keys + S::groups * S::stages * kKeysBytes);  // [tokens, heads]
  begin_kernel();
  const int64_t t0 = int64_t(blockIdx.y) * S::tokens;
  const int tokens = int(min(int64_t(S::tokens), a.tokens - t0));
  const int p_begin = blockIdx.x * tiles * kTileRows, p_end = min(p_begin + tiles * kTileRows, a.context);

  const int group = warpgroup(), warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp;
  uint8_t* keys = all_keys + group * S::stages * kKeysBytes;
  const int row = warp * 16 + lane / 4 + lane % 2 * 8;  // that the lane writes, of every other token

  // Tokens of one sequence go over its keys together.
  for (int first = 0, next = 0; first < tokens; first = next) {
    const int sequence = a.sequence_of[t0 + first];
    int visible = 0;
    for (next = first; next < tokens && a.sequence_of[t0 + next] == sequence; ++next)
      visible = max(visible, a.visible[t0 + next]);
    next = __shfl_sync(kAllLanes, next, 0);  // so that the compiler knows that a warp agrees
    const int seen_end = __shfl_sync(kAllLanes, min(p_end, visible), 0);
    constexpr int kStep = S::groups * kTileRows;
    const int p_first = p_begin + group * kTileRows;
    meet(1 + group, kGroupThreads);  // the keys of the sequence before have been used
    for (int i = 0; i + 1 < S::stages; ++i) {
      if (p_first + i * kStep < seen_end)
        copy_keys(a.k, sequence, p_first + i * kStep, seen_end, keys + i * kKeysBytes);
      commit_copies();
    }
    if (first == 0) {  // while the first keys are on their way
      const auto* from = reinterpret_cast<const float4*>(a.q_row(t0, 0));
#pragma unroll 4
      for (int i = threadIdx.x; i < S::tokens * S::heads * (kDim / 8); i += S::groups * kGroupThreads) {
        const int r = i / (kDim / 8), c = i % (kDim / 8);
        const bool exists = r < tokens * S::heads;
        const float4 low = exists ? from[2 * i] : float4{}, high = exists ? from[2 * i + 1] : float4{};
        *reinterpret_cast<uint4*>(q + r / S::q_rows * S::q_bytes + c / 8 * (S::q_rows * 128) +
                                  piece(r % S::q_rows, c % 8)) = piece_of(low, high);
      }
      for (int i = threadIdx.x; i < tokens * S::heads; i += blockDim.x)
        weights[i] = a.head_weights[t0 * S::heads + i];
      show_to_products();
      __syncthreads();
    }
    int stage = 0, p = p_first;
    for (; p < seen_end; p += kStep) {
      wait_for_copies<S::stages - 2>();
      show_to_products();
      meet(1 + group, kGroupThreads);
      const int ahead = p + (S::stages - 1) * kStep;
      if (ahead < seen_end)
        copy_keys(a.k, sequence, ahead, seen_end, keys + (stage + S::stages - 1) % S::stages * kKeysBytes);
      commit_copies();
      const uint64_t k_operand = operand(keys + stage * kKeysBytes);
      for (int product = first / S::at_once; product * S::at_once < next; ++product) {
        const uint64_t q_operand = operand(q + product * S::q_bytes);
        float dots[S::q_rows / 2];
        begin_multiply();
#pragma unroll
        for (int i = 0; i < kDim / 16; ++i)
          multiply(dots, k_operand + ((i / 4 * kTileBytes + i % 4 * 32) >> 4),
                   q_operand + ((i / 4 * S::q_rows * 128 + i % 4 * 32) >> 4), i > 0);
        commit_multiply();
        const auto* w = reinterpret_cast<const float2*>(weights + product * S::q_rows + lane % 4 * 2);
        wait_multiply();
#pragma unroll
        for (int token = 0; token < S::at_once; ++token) {
          float low = 0, high = 0;
#pragma unroll
          for (int i = 0; i < S::heads / 8; ++i) {
            const int j = token * (S::heads / 8) + i;
            const float2 weight = w[4 * j];
            low = fmaf(weight.x, relu(dots[4 * j]), low), high = fmaf(weight.x, relu(dots[4 * j + 2]), high);
            low = fmaf(weight.y, relu(dots[4 * j + 1]), low),
            high = fmaf(weight.y, relu(dots[4 * j + 3]), high);
          }
          low += __shfl_xor_sync(kAllLanes, low, 1), high += __shfl_xor_sync(kAllLanes, high, 1);
          low += __shfl_xor_sync(kAllLanes, low, 2), high += __shfl_xor_sync(kAllLanes, high, 2);
          const int at = product * S::at_once + token;
          if (lane % 4 / 2 == token % 2 && at >= first && at < next && p + row < p_end)
            a.scores[(t0 + at) * a.scores_stride + p + row] = p + row >= a.visible[t0 + at] ? -INFINITY
                                                              : lane % 2 == 0               ? low
                                                                                            : high;
        }
      }
      stage = (stage + 1) % S::stages;
    }
    wait_for_copies<0>();
    for (; p < p_end; p += kStep)
      for (int token = first; token < next; ++token)
        if (const int at = p + int(threadIdx.x % kGroupThreads); at < min(p + kTileRows, p_end))
          a.scores[(t0 + token) * a.scores_stride + at] = -INFINITY;
  }
#endif
}

template <class S>
void run(const IndexScoresArgs& a, Queue& queue) {
  const int64_t rows = ceil_div(a.tokens, S::tokens), tiles = ceil_div(a.context, kTileRows);
  const int64_t blocks =
      int64_t(static_cast<CudaQueue&>(queue).device().multiprocessors) * kBlocksOfProcessor;
  const int64_t of_block = ceil_div(rows * tiles, blocks);
  const int64_t taken = of_block > kTilesMin ? of_block : kTilesMin;
  launch(queue, dim3(unsigned(ceil_div(tiles, taken)), unsigned(rows)), S::groups * kGroupThreads,
         S::shared_bytes, index_scores_kernel<S>, a, int(taken));
}

// Few tokens are taken to be of different sequences.
template <int kHeads>
void run(const IndexScoresArgs& a, Queue& queue) {
  constexpr int kAtOnce = 128 / kHeads;
  a.tokens <= 64 ? run<Shape<kHeads, 1, 1, 2, 3>>(a, queue)
                 : run<Shape<kHeads, kAtOnce, 2 * kAtOnce, 4, 2>>(a, queue);
}

bool aligned(const PagedRows& k) { return uintptr_t(k.pages) % 16 == 0 && k.page_stride % 16 == 0; }

}  // namespace

void sm90::index_scores(const IndexScoresArgs& a, Queue& queue) {
  const bool fits = a.route == Route::fast && a.k.format == CacheFormat::bf16 && a.dim == kDim &&
                    aligned(a.k) && uintptr_t(a.q) % 16 == 0;
  if (fits && a.heads == 64) return run<64>(a, queue);
  if (fits && a.heads == 32) return run<32>(a, queue);
  cuda::index_scores(a, queue);
}

}  // namespace dsa
