// kernels/sparse_attention/sparse_attention_sm90.cu: wgmma on 64 heads x tiles of 64 rows, for rows of 512 + 64 values
// that are kept as bf16.
//
// A cluster of kBlocks blocks takes a token and up to kStretch of its slots, a quarter each. In a block one warpgroup
// gathers rows into two buffers; two multiply: each scores half of the rows of a tile, and sums all of them for half of
// the outputs. The blocks then add what they have through each other's shared memory, in their order. Longer lists are
// several stretches, which a second kernel adds. All cuts depend on the length of the list alone.
#include "kernels/common/attention_sm90.cuh"
#include "kernels/common/cluster_sm90.cuh"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace {

constexpr int kLatentDim = 512, kRopeDim = 64, kColumns = (kLatentDim + kRopeDim) / 64;  // tiles side by side
constexpr int kHeads = 64, kBlocks = 4, kStretch = 8192;
constexpr int kRowsBytes = kColumns * kTileBytes;
constexpr int kMultiplyThreads = 2 * kGroupThreads, kThreads = kMultiplyThreads + kGroupThreads;
constexpr int kOutStride = kLatentDim + 8;      // floats; rows start in other banks
constexpr int kPartialFloats = kLatentDim + 2;  // sums, then their Softmax
constexpr float kLog2E = 1.44269504f;

// What a head has seen: sums are of weights 2^(score - largest) times values.
struct Softmax {
  float largest, total;
};

struct Shared {
  uint64_t full[2], empty[2];
  float largest[2][kHeads];  // of the halves of a tile
  Softmax softmax[kHeads];
  int lengths[kThreads / kWarp];
};
constexpr size_t kSharedBytes = 3 * kRowsBytes + kTileBytes + sizeof(Shared) + 1024;  // aligned by hand

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ void init_barrier(uint64_t& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&barrier)), "r"(count) : "memory");
}
__device__ void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(&barrier)) : "memory");
}
// Arrives once the copies of the thread are there.
__device__ void arrive_with_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)) : "memory");
}
__device__ void wait(uint64_t& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(address_of(&barrier)),
      "r"(parity)
      : "memory");
}
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ Softmax load_softmax(uint32_t address) {
  Softmax s;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(s.largest), "=f"(s.total)
               : "r"(address)
               : "memory");
  return s;
}
#endif

// 2^(score - largest), and 0 where nothing has been seen.
__device__ float weight_of(float score, float largest) {
  return exp2f(score - (largest == -INFINITY ? 0.f : largest));
}

// Slots up to the last one in use. All threads of the block.
__device__ int used_slots(const int32_t* list, int slots, int* lengths) {
  if (slots == 0 || list[slots - 1] >= 0) return slots;
  int used = 0;
  for (int i = threadIdx.x; i < slots; i += kThreads)
    if (list[i] >= 0) used = i + 1;
  used = __reduce_max_sync(kAllLanes, used);
  if (threadIdx.x % kWarp == 0) lengths[threadIdx.x / kWarp] = used;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) used = max(used, lengths[i]);
  return used;
}

// Grid (kBlocks * groups of heads * stretches, tokens) in clusters of kBlocks. Reads each row once per 64 heads. Token
// `first` is the first of the grid and of the partials, [tokens, heads, stretches, kPartialFloats].
__global__ void __launch_bounds__(kThreads, 1)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int stretches,
                            float* partials) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* q = first_tile(dynamic_shared<uint8_t>());  // [kColumns, heads, 64]
  uint8_t* rows = q + kRowsBytes;                      // [2, kColumns, 64, 64]
  uint8_t* weights = rows + 2 * kRowsBytes;            // [heads, 64]
  Shared& shared = *reinterpret_cast<Shared*>(weights + kTileBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) init_barrier(shared.full[i], kGroupThreads), init_barrier(shared.empty[i], 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  begin_kernel();
  const int block = blockIdx.x % kBlocks, stretch = blockIdx.x / kBlocks % stretches,
            head = blockIdx.x / kBlocks / stretches * kHeads, heads = min(kHeads, a.heads - head);
  const int64_t t = first + blockIdx.y;
  const int32_t* list = a.selected ? a.selected + t * a.top_k : nullptr;
  const int length = list ? used_slots(list, a.top_k, shared.lengths) : a.visible[t];
  __syncthreads();
  if (stretch > 0 && stretch * kStretch >= length) return;  // with the whole cluster

  const int tiles = (min(kStretch, length - stretch * kStretch) + kTileRows - 1) / kTileRows,
            of_block = (tiles + kBlocks - 1) / kBlocks, begin = min(block * of_block, tiles),
            count = min(of_block, tiles - begin);
  const int slot_begin = stretch * kStretch + begin * kTileRows, sequence = a.sequence_of[t];

  if (threadIdx.x >= kMultiplyThreads) {
    give_registers<56>();
    const int thread = threadIdx.x - kMultiplyThreads, c = thread % 8;
    for (int i = 0; i < count; ++i) {
      const char* row[4];
      bool exists[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int slot = slot_begin + i * kTileRows + thread / 8 + 16 * j;
        const int p = slot >= length ? -1 : list ? list[slot] : slot;
        exists[j] = p >= 0;
        row[j] =
            exists[j] ? a.latents.values<const char>(sequence, p) : static_cast<const char*>(a.latents.pages);
      }
      wait(shared.empty[i % 2], i / 2 % 2 ^ 1);
      uint8_t* to = rows + i % 2 * kRowsBytes;
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int column = 0; column < kColumns; ++column)
          copy_async(to + column * kTileBytes + piece(thread / 8 + 16 * j, c), row[j] + column * 128 + c * 16,
                     exists[j]);
      arrive_with_copies(shared.full[i % 2]);
    }
    meet_cluster(), meet_cluster(), meet_cluster();
    return;
  }

  take_registers<216>();
  const int group = threadIdx.x / kGroupThreads, warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp;
  const int row = warp * 16 + lane / 4;  // heads of the thread: this one and 8 below it
  for (int i = threadIdx.x; i < kHeads * kColumns * 8; i += kMultiplyThreads) {
    const int h = i / (kColumns * 8), column = i / 8 % kColumns, c = i % 8;
    uint4 values = {};
    if (h < heads && column < kLatentDim / 64) {
      const auto* from = reinterpret_cast<const float4*>(a.q_latent + (t * a.heads + head + h) * kLatentDim +
                                                         column * 64 + c * 8);
      values = piece_of(from[0], from[1]);
    } else if (h < heads) {
      const float* x = a.q_rope + t * a.q_rope_token_stride + (head + h) * a.q_rope_head_stride + c * 8;
      values = piece_of({x[0], x[1], x[2], x[3]}, {x[4], x[5], x[6], x[7]});
    }
    *reinterpret_cast<uint4*>(q + column * kTileBytes + piece(h, c)) = values;
  }
  show_to_products();
  meet(1, kMultiplyThreads);

  float sums[128] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
  const float scale = a.scale * kLog2E;
  const auto rows_used = [&](int i) {  // of the half of tile i that the group scores, a bit each
    const int slot = slot_begin + i * kTileRows + group * 32 + lane;
    return __ballot_sync(kAllLanes, slot < length && (!list || list[slot] >= 0));
  };
  unsigned used = count > 0 ? rows_used(0) : 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* tile = rows + i % 2 * kRowsBytes;
    float scores[16];
    wait(shared.full[i % 2], i / 2 % 2);
    show_to_products();
    begin_multiply();
    const uint64_t q_operand = operand(q), k_operand = operand(tile + group * (kTileBytes / 2));
#pragma unroll
    for (int k = 0; k < kColumns * 4; ++k) {
      const int at = (k / 4 * kTileBytes + k % 4 * 32) >> 4;
      multiply(scores, q_operand + at, k_operand + at, k > 0);
    }
    commit_multiply();
    wait_multiply();

    float next[2] = {largest[0], largest[1]};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const bool is_used = used >> (j / 4 * 8 + lane % 4 * 2 + j % 2) & 1;
      scores[j] = is_used ? scores[j] * scale : -INFINITY;
      next[j / 2 % 2] = fmaxf(next[j / 2 % 2], scores[j]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      next[half] = fmaxf(next[half], __shfl_xor_sync(kAllLanes, next[half], 1));
      next[half] = fmaxf(next[half], __shfl_xor_sync(kAllLanes, next[half], 2));
      if (lane % 4 == 0) shared.largest[group][row + 8 * half] = next[half];
    }
    meet(1, kMultiplyThreads);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      next[half] = fmaxf(next[half], shared.largest[1 - group][row + 8 * half]);
      factor[half] = largest[half] == next[half] ? 1.f : exp2f(largest[half] - next[half]);
      largest[half] = next[half];
      total[half] *= factor[half];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = round_to_bf16x2(weight_of(scores[4 * j + 2 * half], next[half]),
                                              weight_of(scores[4 * j + 2 * half + 1], next[half]));
        total[half] += bits_to_f32(pair << 16) + bits_to_f32(pair & 0xffff0000u);
        *reinterpret_cast<uint32_t*>(weights + piece(row + 8 * half, group * 4 + j) + lane % 4 * 4) = pair;
      }
    show_to_products();
    meet(2, kMultiplyThreads);

    if (__any_sync(kAllLanes, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
      for (int j = 0; j < 128; ++j) sums[j] *= factor[j / 2 % 2];
    }
    begin_multiply();
    const uint64_t weights_operand = operand(weights),
                   v_operand = operand_turned(tile + group * (kLatentDim / 128 * kTileBytes));
#pragma unroll
    for (int k = 0; k < kTileRows / 16; ++k)
      multiply_turned(sums, weights_operand + (k * 32 >> 4), v_operand + (k * 2048 >> 4), true);
    commit_multiply();
    used = i + 1 < count ? rows_used(i + 1) : 0;
    wait_multiply();
    if (threadIdx.x % kGroupThreads == 0) arrive(shared.empty[i % 2]);
  }

  // The softmax of the block, then that of the cluster.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(kAllLanes, total[half], 1);
    total[half] += __shfl_xor_sync(kAllLanes, total[half], 2);
    if (lane % 4 == 0) shared.largest[group][row + 8 * half] = total[half];
  }
  meet(1, kMultiplyThreads);
  if (group == 0 && lane % 4 == 0)
    for (int half = 0; half < 2; ++half) {
      const int h = row + 8 * half;
      shared.softmax[h] = {largest[half], shared.largest[0][h] + shared.largest[1][h]};
    }
  meet_cluster();
  const bool whole = length <= kStretch;
  Softmax all[2];
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Softmax part[kBlocks];
    all[half] = {-INFINITY, 0};
    for (int i = 0; i < kBlocks; ++i) {
      part[i] = load_softmax(address_in(&shared.softmax[row + 8 * half], i));
      all[half].largest = fmaxf(all[half].largest, part[i].largest);
    }
    for (int i = 0; i < kBlocks; ++i)
      all[half].total = fmaf(part[i].total, weight_of(part[i].largest, all[half].largest), all[half].total);
    factor[half] = weight_of(largest[half], all[half].largest);
    if (whole) factor[half] = all[half].total == 0 ? 0 : factor[half] / all[half].total;
  }

  // What the block has, in the place of its rows; each block then adds up a quarter of the heads.
  auto* out = reinterpret_cast<float*>(rows);  // [heads, kOutStride]
#pragma unroll
  for (int j = 0; j < 32; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(out + (row + 8 * half) * kOutStride + group * 256 + 8 * j + lane % 4 * 2) = {
          sums[4 * j + 2 * half] * factor[half], sums[4 * j + 2 * half + 1] * factor[half]};
  meet_cluster();
  constexpr int kBlockHeads = kHeads / kBlocks;
  const int64_t partial = (int64_t(blockIdx.y) * a.heads + head) * stretches + stretch;  // of the first head
  for (int i = threadIdx.x; i < kBlockHeads * kLatentDim / 4; i += kMultiplyThreads) {
    const int h = block * kBlockHeads + i / (kLatentDim / 4), d = i % (kLatentDim / 4) * 4;
    float4 sum = {};
    for (int from = 0; from < kBlocks; ++from) {
      const float4 x = load_float4(address_in(out + h * kOutStride + d, from));
      sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (h >= heads) continue;
    if (whole) {
      *reinterpret_cast<float4*>(a.o + (t * a.heads + head + h) * kLatentDim + d) = sum;
    } else {
      auto* to = reinterpret_cast<float2*>(partials + (partial + h * stretches) * kPartialFloats + d);
      to[0] = {sum.x, sum.y}, to[1] = {sum.z, sum.w};
    }
  }
  if (!whole && block == 0 && group == 0 && lane % 4 == 0)
    for (int half = 0; half < 2; ++half)
      if (const int h = row + 8 * half; h < heads)
        *reinterpret_cast<Softmax*>(partials + (partial + h * stretches) * kPartialFloats + kLatentDim) =
            all[half];
  meet_cluster();  // nobody leaves whose memory is being read
#endif
}

// Adds the stretches of lists that have several, one block a head. Only lists of all visible positions do.
void add_stretches(const SparseAttentionArgs& a, int64_t first, int64_t tokens, int stretches,
                   const float* partials, Queue& queue) {
  each_block(queue, tokens * a.heads, 128, [=] __device__(int64_t i) {
    const int64_t t = first + i / a.heads;
    const int length = a.visible[t];
    if (length <= kStretch) return;
    const float* parts = partials + i * stretches * kPartialFloats;
    const int used = (length + kStretch - 1) / kStretch;
    float largest = -INFINITY, total = 0;
    for (int s = 0; s < used; ++s) largest = fmaxf(largest, parts[s * kPartialFloats + kLatentDim]);
    float4 sum = {};
    for (int s = 0; s < used; ++s) {
      const float* part = parts + s * kPartialFloats;
      const float factor = weight_of(part[kLatentDim], largest);
      total = fmaf(part[kLatentDim + 1], factor, total);
      const auto* x = reinterpret_cast<const float2*>(part + threadIdx.x * 4);
      sum.x = fmaf(x[0].x, factor, sum.x), sum.y = fmaf(x[0].y, factor, sum.y);
      sum.z = fmaf(x[1].x, factor, sum.z), sum.w = fmaf(x[1].y, factor, sum.w);
    }
    const float scale = total == 0 ? 0 : 1 / total;
    auto* o = reinterpret_cast<float4*>(a.o + (t * a.heads + i % a.heads) * kLatentDim);
    o[threadIdx.x] = {sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
  });
}

bool aligned(const SparseAttentionArgs& a) {
  const uintptr_t all =
      uintptr_t(a.latents.pages) | a.latents.page_stride | uintptr_t(a.q_latent) | uintptr_t(a.o);
  return all % 16 == 0;
}

}  // namespace

void sm90::sparse_attention(const SparseAttentionArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const int64_t positions = a.selected ? a.top_k : int64_t(a.latents.max_pages) * a.latents.page_rows;
  const int64_t stretches = positions <= kStretch ? 1 : ceil_div(positions, kStretch);
  const int64_t of_token = stretches > 1 ? stretches * a.heads * kPartialFloats : 0;
  const int64_t fit =
      of_token > 0 ? int64_t(cuda_queue.scratch_bytes() / sizeof(float)) / of_token : a.tokens;
  const bool fits = a.route == Route::fast && a.latents.format == CacheFormat::bf16 &&
                    a.latent_dim == kLatentDim && a.rope_dim == kRopeDim &&
                    (a.selected == nullptr || stretches == 1) && fit > 0 && aligned(a);
  if (!fits) return cuda::sparse_attention(a, queue);

  auto* partials = static_cast<float*>(cuda_queue.scratch());
  const unsigned blocks = unsigned(kBlocks * ceil_div(a.heads, kHeads) * stretches);
  for (int64_t first = 0; first < a.tokens; first += fit) {
    const int64_t tokens = a.tokens - first < fit ? a.tokens - first : fit;
    launch_clusters(queue, dim3(blocks, unsigned(tokens)), kBlocks, kThreads, kSharedBytes,
                    sparse_attention_kernel, a, int(first), int(stretches), partials);
    if (stretches > 1) add_stretches(a, first, tokens, int(stretches), partials, queue);
  }
}

}  // namespace dsa
