// kernels/sparse_attention/sparse_attention_sm90.cu: wgmma on 64 heads x tiles of 64 rows, for rows of 512 + 64 values
// that are kept as bf16.
//
// A cluster of two blocks takes a token and a stretch of its slots, half of it each. In a block one warpgroup gathers
// rows into two buffers; two multiply: each scores half of the rows of a tile, and sums all of them for half of the
// outputs. The blocks then add what they have through each other's shared memory, in their order. Lists of several
// stretches are added up by a second kernel. All cuts depend on the list alone, and clusters take stretches in turn.
#include "kernels/common/attention_sm90.cuh"
#include "kernels/common/cluster_sm90.cuh"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace {

constexpr int kLatentDim = 512, kRopeDim = 64, kColumns = (kLatentDim + kRopeDim) / 64;  // tiles side by side
constexpr int kHeads = 64, kBlocks = 2;
constexpr int kStretchesMax = 64, kStretchOfList = 1024,
              kStretchOfAll = 512;  // stretches; slots of one at least
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
};
constexpr size_t kSharedBytes = 3 * kRowsBytes + kTileBytes + sizeof(Shared);

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

// Slots of a stretch of `length` slots: those of a list, or all positions.
__device__ int stretch_of(int length, bool is_list) {
  const int least = is_list ? kStretchOfList : kStretchOfAll,
            of_most = (length + kStretchesMax - 1) / kStretchesMax;
  constexpr int kRows = kBlocks * kTileRows;
  return max(least, (of_most + kRows - 1) / kRows * kRows);
}

// Slots of token t up to the last one in use. Each warp by itself.
__device__ int used_slots(const SparseAttentionArgs& a, int64_t t) {
  if (a.selected == nullptr) return a.visible[t];
  const int32_t* list = a.selected + t * a.top_k;
  if (a.top_k == 0 || list[a.top_k - 1] >= 0) return a.top_k;
  int used = 0;
#pragma unroll 8
  for (int i = threadIdx.x % kWarp; i < a.top_k; i += kWarp)
    if (list[i] >= 0) used = i + 1;
  return int(__reduce_max_sync(kAllLanes, unsigned(used)));
}

// Grid (kBlocks * groups of heads * clusters, tokens) in clusters of kBlocks. Reads each row once per 64 heads. Token
// `first` is the first of the grid and of the partials, [tokens, heads, stretches, kPartialFloats].
__global__ void __launch_bounds__(kThreads, 1)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int clusters,
                            int stretches, float* partials) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* q = shared_tiles();               // [kColumns, heads, 64]
  uint8_t* rows = q + kRowsBytes;            // [2, kColumns, 64, 64]
  uint8_t* weights = rows + 2 * kRowsBytes;  // [heads, 64]
  Shared& shared = *reinterpret_cast<Shared*>(weights + kTileBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) init_barrier(shared.full[i], kGroupThreads), init_barrier(shared.empty[i], 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  begin_kernel();
  const int block = blockIdx.x % kBlocks, cluster = blockIdx.x / kBlocks % clusters,
            head = blockIdx.x / kBlocks / clusters * kHeads, heads = min(kHeads, a.heads - head);
  const int64_t t = first + blockIdx.y;
  const int32_t* list = a.selected ? a.selected + t * a.top_k : nullptr;
  const int length = used_slots(a, t), sequence = a.sequence_of[t],
            slots = stretch_of(length, list != nullptr),
            used_stretches = max(1, (length + slots - 1) / slots);
  __syncthreads();
  if (cluster >= used_stretches) return;  // with the whole cluster

  // Of a stretch: its first tile of this block, and how many it has.
  struct Part {
    int slot, count;
  };
  const auto part_of = [&](int stretch) {
    const int tiles = (min(slots, length - stretch * slots) + kTileRows - 1) / kTileRows,
              of_block = (tiles + kBlocks - 1) / kBlocks, begin = min(block * of_block, tiles);
    return Part{stretch * slots + begin * kTileRows, min(of_block, tiles - begin)};
  };

  if (threadIdx.x >= kMultiplyThreads) {
    give_registers<56>();
    const int thread = threadIdx.x - kMultiplyThreads, c = thread % 8;
    int n = 0;  // tiles so far
    for (int stretch = cluster; stretch < used_stretches; stretch += clusters) {
      const Part part = part_of(stretch);
      for (int i = 0; i < part.count; ++i, ++n) {
        const char* row[4];
        bool exists[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int slot = part.slot + i * kTileRows + thread / 8 + 16 * j;
          const int p = slot >= length ? -1 : list ? list[slot] : slot;
          exists[j] = p >= 0;
          row[j] = exists[j] ? a.latents.values<const char>(sequence, p)
                             : static_cast<const char*>(a.latents.pages);
        }
        wait(shared.empty[n % 2], n / 2 % 2 ^ 1);
        uint8_t* to = rows + n % 2 * kRowsBytes;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int column = 0; column < kColumns; ++column)
            copy_async(to + column * kTileBytes + piece(thread / 8 + 16 * j, c),
                       row[j] + column * 128 + c * 16, exists[j]);
        arrive_with_copies(shared.full[n % 2]);
      }
      meet_cluster(), meet_cluster(), meet_cluster();
    }
    return;
  }

  take_registers<216>();
  const int group = warpgroup(), warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp;
  const int row = warp * 16 + lane / 4;  // heads of the thread: this one and 8 below it
  constexpr int kAtOnce = 8;             // pieces that a thread has on their way
  for (int first = threadIdx.x; first < kHeads * kLatentDim / 8; first += kAtOnce * kMultiplyThreads) {
    float4 values[kAtOnce][2] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * kMultiplyThreads, h = i / (kLatentDim / 8);
      const auto* from = reinterpret_cast<const float4*>(a.q_latent + (t * a.heads + head) * kLatentDim);
      if (h < heads) values[j][0] = from[2 * i], values[j][1] = from[2 * i + 1];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * kMultiplyThreads, h = i / (kLatentDim / 8),
                column = i / 8 % (kLatentDim / 64);
      *reinterpret_cast<uint4*>(q + column * kTileBytes + piece(h, i % 8)) =
          piece_of(values[j][0], values[j][1]);
    }
  }
#pragma unroll
  for (int i = threadIdx.x; i < kHeads * kRopeDim / 8; i += kMultiplyThreads) {
    const int h = i / 8;
    float x[8] = {};
    const float* from = a.q_rope + t * a.q_rope_token_stride + (head + h) * a.q_rope_head_stride + i % 8 * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (h < heads) x[j] = from[j];
    *reinterpret_cast<uint4*>(q + kLatentDim / 64 * kTileBytes + piece(h, i % 8)) =
        piece_of({x[0], x[1], x[2], x[3]}, {x[4], x[5], x[6], x[7]});
  }
  show_to_products();
  meet(1, kMultiplyThreads);

  int n = 0;  // tiles so far
  for (int stretch = cluster; stretch < used_stretches; stretch += clusters) {
    const int count = part_of(stretch).count, slot_begin = part_of(stretch).slot;
    float sums[128] = {};
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
    const float scale = a.scale * kLog2E;
    const auto rows_used = [&](int i) {  // of the half of tile i that the group scores, a bit each
      const int slot = slot_begin + i * kTileRows + group * 32 + lane;
      return __ballot_sync(kAllLanes, slot < length && (!list || list[slot] >= 0));
    };
    float factor[2];
    const auto begin_scores = [&](int i, float(&scores)[16]) {
      wait(shared.full[(n + i) % 2], (n + i) / 2 % 2);
      show_to_products();
      begin_multiply();
      const uint64_t q_operand = operand(q),
                     k_operand = operand(rows + (n + i) % 2 * kRowsBytes + group * (kTileBytes / 2));
#pragma unroll
      for (int k = 0; k < kColumns * 4; ++k) {
        const int at = (k / 4 * kTileBytes + k % 4 * 32) >> 4;
        multiply(scores, q_operand + at, k_operand + at, k > 0);
      }
      commit_multiply();
    };
    // Scores become weights relative to the new maximum; what was summed before shrinks by a factor.
    const auto weigh = [&](unsigned used, float(&scores)[16]) {
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
    };
    const auto begin_sums = [&](int i) {
      if (__any_sync(kAllLanes, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
        for (int j = 0; j < 128; ++j) sums[j] *= factor[j / 2 % 2];
      }
      begin_multiply();
      const uint64_t weights_operand = operand(weights),
                     v_operand = operand_turned(rows + (n + i) % 2 * kRowsBytes +
                                                group * (kLatentDim / 128 * kTileBytes));
#pragma unroll
      for (int k = 0; k < kTileRows / 16; ++k)
        multiply_turned(sums, weights_operand + (k * 32 >> 4), v_operand + (k * 2048 >> 4), true);
      commit_multiply();
    };

    if (count > 0) {
      unsigned used = rows_used(0);
      {
        float scores[16];
        begin_scores(0, scores);
        wait_multiply();
        weigh(used, scores);
      }
      // The sums of a tile are multiplied, and right behind them the scores of the next.
      for (int i = 1; i < count; ++i) {
        float scores[16];
        begin_sums(i - 1);
        begin_scores(i, scores);
        used = rows_used(i);
        wait_multiply<1>();
        if (threadIdx.x % kGroupThreads == 0) arrive(shared.empty[(n + i - 1) % 2]);
        wait_multiply();
        weigh(used, scores);
      }
      begin_sums(count - 1);
      wait_multiply();
      if (threadIdx.x % kGroupThreads == 0) arrive(shared.empty[(n + count - 1) % 2]);
      n += count;
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
    const bool whole = used_stretches == 1;
    Softmax all[2];
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

    // What the block has, in the place of its rows; each block then adds up its part of the heads.
    auto* out = reinterpret_cast<float*>(rows);  // [heads, kOutStride]
#pragma unroll
    for (int j = 0; j < 32; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(out + (row + 8 * half) * kOutStride + group * 256 + 8 * j +
                                   lane % 4 * 2) = {sums[4 * j + 2 * half] * factor[half],
                                                    sums[4 * j + 2 * half + 1] * factor[half]};
    meet_cluster();
    constexpr int kBlockHeads = kHeads / kBlocks;
    const int64_t partial =
        (int64_t(blockIdx.y) * a.heads + head) * stretches + stretch;  // of the first head
#pragma unroll 4
    for (int i = threadIdx.x; i < kBlockHeads * kLatentDim / 4; i += kMultiplyThreads) {
      const int h = block * kBlockHeads + i / (kLatentDim / 4), d = i % (kLatentDim / 4) * 4;
      float4 sum = {};
#pragma unroll
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
    meet_cluster();  // nobody leaves or goes on whose memory is being read
  }
#endif
}

// Adds the stretches of lists that have several, one block a head.
void add_stretches(const SparseAttentionArgs& a, int64_t first, int64_t tokens, int stretches,
                   const float* partials, Queue& queue) {
  each_block(queue, tokens * a.heads, 128, [=] __device__(int64_t i) {
    const int64_t t = first + i / a.heads;
    const int length = used_slots(a, t), slots = stretch_of(length, a.selected != nullptr);
    if (length <= slots) return;
    const float* parts = partials + i * stretches * kPartialFloats;
    const int used = (length + slots - 1) / slots;
    float largest = -INFINITY, total = 0;
#pragma unroll 4
    for (int s = 0; s < used; ++s) largest = fmaxf(largest, parts[s * kPartialFloats + kLatentDim]);
    float4 sum = {};
#pragma unroll 4
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
  const int64_t stretches_at_least = ceil_div(positions, a.selected ? kStretchOfList : kStretchOfAll);
  const int64_t stretches = stretches_at_least < kStretchesMax ? stretches_at_least : kStretchesMax;
  const int64_t of_token = stretches > 1 ? stretches * a.heads * kPartialFloats : 0;
  const int64_t fit =
      of_token > 0 ? int64_t(cuda_queue.scratch_bytes() / sizeof(float)) / of_token : a.tokens;
  const bool fits = a.route == Route::fast && a.latents.format == CacheFormat::bf16 &&
                    a.latent_dim == kLatentDim && a.rope_dim == kRopeDim && fit > 0 && aligned(a);
  if (!fits) return cuda::sparse_attention(a, queue);

  auto* partials = static_cast<float*>(cuda_queue.scratch());
  const int64_t groups = ceil_div(a.heads, kHeads);
  for (int64_t first = 0; first < a.tokens; first += fit) {
    const int64_t tokens = a.tokens - first < fit ? a.tokens - first : fit;
    // As many clusters as run together, at least one for each token and no more than there are stretches.
    int64_t clusters = cuda_queue.device().multiprocessors / (kBlocks * groups * tokens);
    clusters = clusters > stretches ? stretches : clusters;
    clusters = clusters < 1 ? 1 : clusters;
    launch_clusters(queue, dim3(unsigned(kBlocks * groups * clusters), unsigned(tokens)), kBlocks, kThreads,
                    kSharedBytes, sparse_attention_kernel, a, int(first), int(clusters), int(stretches),
                    partials);
    if (stretches > 1) add_stretches(a, first, tokens, int(stretches), partials, queue);
  }
}

}  // namespace dsa
