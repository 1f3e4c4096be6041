// kernels/sparse_attention/sparse_attention_sm90.cu: wgmma on 64 heads x tiles of 64 rows, for rows of 512 + 64 values
// that are kept as bf16.
//
// The slots of a token are cut into tiles, and the tiles into segments, by the length of its list alone. Each tile is
// attended to by itself; the tiles of a segment are added up in their order, then the segments in theirs. Who does that
// depends on how many tokens there are, and the bits do not: a pair of blocks takes two segments and adds them through
// its shared memory; or many blocks take a segment or a tile each, and a second kernel adds.
//
// In a block one warpgroup gathers rows into two buffers. Two multiply: each scores half of the rows of a tile, and sums
// all of them for half of the outputs.
#include <algorithm>

#include "kernels/common/attention_sm90.cuh"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace {

constexpr int kLatentDim = 512, kRopeDim = 64, kColumns = (kLatentDim + kRopeDim) / 64;  // tiles side by side
constexpr int kHeads = 64, kPair = 2;
constexpr int kSegmentTiles = 16, kSegmentsMax = 128;  // tiles of a segment, unless there are too many
constexpr int kPartsMax = 256;                         // of a token that are kept for the second kernel
constexpr int kRowsBytes = kColumns * kTileBytes;
constexpr int kMultiplyThreads = 2 * kGroupThreads, kThreads = kMultiplyThreads + kGroupThreads;
constexpr int kFours = 32;  // a thread has four sums each of: of two heads, two outputs
constexpr float kLog2E = 1.44269504f;

// What heads have seen: sums are of weights 2^(score - largest) times values.
struct Softmax {
  float largest, total;
};

struct Shared {
  uint4 weights[2][2][kGroupThreads];  // of the halves of a tile: operands of two steps
  float largest[2][kHeads], total[2][kHeads];
  uint64_t full[2], empty[2];
  uint32_t used[2][2];  // of the buffers: a bit for each row of both halves
};
constexpr size_t kSharedBytes = 3 * kRowsBytes + sizeof(Shared);

// How a token is cut: its parts are tiles or segments.
struct Cut {
  int tiles, segment_tiles, segments, part_tiles, parts;
  bool by_pair;
};
__host__ __device__ int ceil_of(int a, int b) { return (a + b - 1) / b; }
// Segments of a token at most.
__host__ __device__ int segments_of(int tiles) {
  const int segments = kPair * ceil_of(tiles, kPair * kSegmentTiles);
  return segments < kPair ? kPair : segments > kSegmentsMax ? kSegmentsMax : segments;
}
__device__ Cut cut_of(int length, int blocks, int parts_max) {
  Cut cut;
  cut.tiles = ceil_of(length, kTileRows);
  cut.segment_tiles = max(1, ceil_of(cut.tiles, segments_of(cut.tiles)));
  cut.segments = ceil_of(cut.tiles, cut.segment_tiles);
  // A tile to add costs about four times as much as one that is added at once.
  const bool into_tiles = cut.tiles <= parts_max && 5 * ceil_of(cut.tiles, blocks) <
                                                        ceil_of(cut.segments, blocks) * cut.segment_tiles;
  cut.by_pair = !into_tiles && cut.segments <= kPair;
  cut.part_tiles = into_tiles ? 1 : cut.segment_tiles;
  cut.parts = into_tiles ? cut.tiles : cut.segments;
  return cut;
}

// Where the parts of a token and 64 heads lie: sums as the threads hold them, [parts, 2, kFours, warps, lanes], then
// what their heads have seen, [parts, 16 warps].
struct Parts {
  float4* sums;
  Softmax* softmax;
  int warps;

  __host__ __device__ static size_t floats(int heads, int parts) {
    return size_t(parts) * warps_of(heads) * (2 * kFours * kWarp * 4 + 16 * 2);
  }
  __host__ __device__ static int warps_of(int heads) { return heads > 48 ? 4 : (heads + 15) / 16; }

  __device__ Parts(float* memory, int64_t index, int heads, int parts) : warps(warps_of(heads)) {
    memory += index * floats(heads, parts);
    sums = reinterpret_cast<float4*>(memory);
    softmax = reinterpret_cast<Softmax*>(sums + size_t(parts) * warps * (2 * kFours * kWarp));
  }
  __device__ float4& at(int part, int group, int four, int warp, int lane) const {
    return sums[((int64_t(part) * 2 + group) * kFours + four) * (warps * kWarp) + warp * kWarp + lane];
  }
  __device__ Softmax& seen(int part, int head) const { return softmax[part * warps * 16 + head]; }
};

// 2^(score - largest), and 0 where nothing has been seen.
__device__ float weight_of(float score, float largest) {
  return power_of_two(score - (largest == -INFINITY ? 0.f : largest));
}

// How sums of a head are added to those before.
struct Factors {
  float before, next;

  // Never -0, so that sums may begin anywhere.
  __device__ float add(float sum, float x) const { return fmaf(sum, before, fmaf(x, next, 0.f)); }
};
__device__ Factors add(Softmax& seen, Softmax next) {
  const float largest = fmaxf(seen.largest, next.largest);
  const Factors factors = {weight_of(seen.largest, largest), weight_of(next.largest, largest)};
  seen = {largest, factors.add(seen.total, next.total)};
  return factors;
}
__device__ float4 add(float4 sum, float4 x, const Factors (&factors)[2]) {
  return {factors[0].add(sum.x, x.x), factors[0].add(sum.y, x.y), factors[1].add(sum.z, x.z),
          factors[1].add(sum.w, x.w)};
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

// Four sums of a thread, of row `head` and the one 8 below.
__device__ void put(const SparseAttentionArgs& a, int64_t t, int first_head, int heads, int head, int d,
                    float4 sums, const float (&scale)[2]) {
  float* o = a.o + (t * a.heads + first_head + head) * kLatentDim + d;
  if (head < heads) *reinterpret_cast<float2*>(o) = {sums.x * scale[0], sums.y * scale[0]};
  if (head + 8 < heads) *reinterpret_cast<float2*>(o + 8 * kLatentDim) = {sums.z * scale[1], sums.w * scale[1]};
}

// Grid (`blocks` * groups of heads, tokens) in clusters of kPair. Reads each row once per 64 heads. Token `first` is the
// first of the grid; each keeps up to `parts_max` parts. A page has 2^page_shift rows.
__global__ void __launch_bounds__(kThreads, 1)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int blocks,
                            int parts_max, int page_shift, float* memory) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* q = shared_tiles();     // [kColumns, heads, 64]
  uint8_t* rows = q + kRowsBytes;  // [2, kColumns, 64, 64]
  Shared& shared = *reinterpret_cast<Shared*>(rows + 2 * kRowsBytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      init_barrier(shared.full[i], kGroupThreads + kGroupThreads / kWarp);
      init_barrier(shared.empty[i], 2);
    }
    show_barriers();
  }
  begin_kernel();
  const int block = blockIdx.x % blocks, first_head = blockIdx.x / blocks * kHeads,
            heads = min(kHeads, a.heads - first_head);
  const int64_t t = first + blockIdx.y;
  const int32_t* list = a.selected ? a.selected + t * a.top_k : nullptr;
  const int length = used_slots(a, t);
  const Cut cut = cut_of(length, blocks, parts_max);
  __syncthreads();
  if (block >= (cut.by_pair ? kPair : cut.parts)) return;

  if (threadIdx.x >= kMultiplyThreads) {
    give_registers<40>();
    const int warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp, c = threadIdx.x % 8;
    const int parts = (cut.parts - block + blocks - 1) / blocks;  // of this block
    const bool last = parts > 0 && (cut.parts - 1) % blocks == block;
    const int tiles = parts * cut.part_tiles - (last ? cut.parts * cut.part_tiles - cut.tiles : 0);
    // Each warp gathers 16 rows of a tile. Its lanes find the rows of two tiles at once, one pair of tiles ahead, and
    // read the list two ahead.
    const int32_t* pages = a.latents.block_tables + int64_t(a.sequence_of[t]) * a.latents.max_pages;
    const auto position_of = [&](int pair) {
      const int n = 2 * pair + lane / 16;
      if (n >= tiles) return -1;
      const int tile = (block + n / cut.part_tiles * blocks) * cut.part_tiles + n % cut.part_tiles;
      const int slot = tile * kTileRows + warp * 16 + lane % 16;
      return slot >= length ? -1 : list ? list[slot] : slot;
    };
    const auto page_of = [&](int p) { return p < 0 ? 0 : pages[p >> page_shift]; };
    int position = position_of(0), page = page_of(position), next = position_of(1);
    for (int pair = 0; 2 * pair < tiles; ++pair) {
      const int row = position & ((1 << page_shift) - 1);
      const size_t offset = page * a.latents.page_stride + size_t(row) * (kColumns * 128);
      const unsigned exist = __ballot_sync(kAllLanes, position >= 0);
      position = next, page = page_of(next), next = position_of(pair + 2);
#pragma unroll 1
      for (int i = 0; i < 2 && 2 * pair + i < tiles; ++i) {
        wait(shared.empty[i], pair % 2 ^ 1);
        if (lane == 0)
          reinterpret_cast<uint16_t*>(shared.used[i])[warp] = uint16_t(exist >> (16 * i));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int r = 4 * j + lane / 8, from = 16 * i + r;
          const char* values = static_cast<const char*>(a.latents.pages) +
                               __shfl_sync(kAllLanes, offset, from) + c * 16;
          uint8_t* to = rows + i * kRowsBytes + piece(warp * 16 + r, c);
          const bool exists = exist >> from & 1;
#pragma unroll
          for (int column = 0; column < kColumns; ++column)
            copy_async(to + column * kTileBytes, values + column * 128, exists);
        }
        arrive_with_copies(shared.full[i]);
        if (lane == 0) arrive(shared.full[i]);
      }
    }
    if (cut.by_pair) meet_cluster(), meet_cluster();
    return;
  }

  take_registers<232>();
  const int group = warpgroup(), warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp;
  const int row = warp * 16 + lane / 4;  // heads of the thread: this one and 8 below it
  constexpr int kAtOnce = 8;             // pieces that a thread has on their way
  for (int i0 = threadIdx.x; i0 < kHeads * kLatentDim / 8; i0 += kAtOnce * kMultiplyThreads) {
    float4 values[kAtOnce][2] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = i0 + j * kMultiplyThreads, h = i / (kLatentDim / 8);
      const auto* from =
          reinterpret_cast<const float4*>(a.q_latent + (t * a.heads + first_head) * kLatentDim);
      if (h < heads) values[j][0] = from[2 * i], values[j][1] = from[2 * i + 1];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = i0 + j * kMultiplyThreads, h = i / (kLatentDim / 8), column = i / 8 % (kLatentDim / 64);
      *reinterpret_cast<uint4*>(q + column * kTileBytes + piece(h, i % 8)) =
          piece_of(values[j][0], values[j][1]);
    }
  }
#pragma unroll
  for (int i = threadIdx.x; i < kHeads * kRopeDim / 8; i += kMultiplyThreads) {
    const int h = i / 8;
    float x[8] = {};
    const float* from =
        a.q_rope + t * a.q_rope_token_stride + (first_head + h) * a.q_rope_head_stride + i % 8 * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (h < heads) x[j] = from[j];
    *reinterpret_cast<uint4*>(q + kLatentDim / 64 * kTileBytes + piece(h, i % 8)) =
        piece_of({x[0], x[1], x[2], x[3]}, {x[4], x[5], x[6], x[7]});
  }
  show_to_products();
  meet(1, kMultiplyThreads);

  const float scale = a.scale * kLog2E;
  const int together = 2 + warp;  // with the warp that scores the other half for the same heads
  int n = 0;                      // tiles so far
  for (int part = block;;) {
    float sums[4 * kFours] = {};
    Softmax seen[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    const int count = min(cut.part_tiles, cut.tiles - part * cut.part_tiles);
    for (int i = 0; i < count; ++i, ++n) {
      const uint8_t* tile = rows + n % 2 * kRowsBytes;
      float scores[16];
      wait(shared.full[n % 2], n / 2 % 2);
      show_to_products();
      begin_multiply();
      const uint64_t q_operand = operand(q), k_operand = operand(tile + group * (kTileBytes / 2));
#pragma unroll
      for (int k = 0; k < kColumns * 4; ++k) {
        const int at = (k / 4 * kTileBytes + k % 4 * 32) >> 4;
        multiply(scores, q_operand + at, k_operand + at, k > 0);
      }
      commit_multiply();
      const uint32_t used = shared.used[n % 2][group];
      wait_multiply();
      take_product(scores);

      // The largest score of the tile, and weights relative to it.
      Softmax of_tile[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const bool is_used = used >> (j / 4 * 8 + lane % 4 * 2 + j % 2) & 1;
        scores[j] = is_used ? scores[j] * scale : -INFINITY;
        of_tile[j / 2 % 2].largest = fmaxf(of_tile[j / 2 % 2].largest, scores[j]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& largest = of_tile[half].largest;
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
        if (lane % 4 == 0) shared.largest[group][row + 8 * half] = largest;
      }
      meet(together, 2 * kWarp);
      uint32_t weights[4][4];  // operands of the four steps: first those of the own half
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Softmax& of = of_tile[half];
        of.largest = fmaxf(of.largest, shared.largest[1 - group][row + 8 * half]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t pair = round_to_bf16x2(weight_of(scores[4 * j + 2 * half], of.largest),
                                                weight_of(scores[4 * j + 2 * half + 1], of.largest));
          of.total += bits_to_f32(pair << 16) + bits_to_f32(pair & 0xffff0000u);
          weights[j / 2][j % 2 * 2 + half] = pair;
        }
        of.total += __shfl_xor_sync(kAllLanes, of.total, 1);
        of.total += __shfl_xor_sync(kAllLanes, of.total, 2);
        if (lane % 4 == 0) shared.total[group][row + 8 * half] = of.total;
      }
#pragma unroll
      for (int step = 0; step < 2; ++step)
        shared.weights[group][step][threadIdx.x % kGroupThreads] = {weights[step][0], weights[step][1],
                                                                    weights[step][2], weights[step][3]};
      meet(together, 2 * kWarp);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 other = shared.weights[1 - group][step][threadIdx.x % kGroupThreads];
        weights[2 + step][0] = other.x, weights[2 + step][1] = other.y;
        weights[2 + step][2] = other.z, weights[2 + step][3] = other.w;
      }
      Factors factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        of_tile[half].total += shared.total[1 - group][row + 8 * half];
        factors[half] = add(seen[half], of_tile[half]);
      }

      // Sums of the tile, 64 outputs at a time, are added to those before while the next ones are multiplied.
      constexpr int kAhead = 2, kTimes = kLatentDim / 2 / 64;
      float products[kAhead][32];
      const auto begin_sums = [&](int c, float(&d)[32]) {
        const uint64_t v_operand = operand_turned(tile + (group * kTimes + c) * kTileBytes);
        begin_multiply();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const int half = step < 2 ? group : 1 - group;
          multiply_turned(d, weights[step], v_operand + ((half * 2 + step % 2) * 2048 >> 4), step > 0);
        }
        commit_multiply();
      };
      begin_sums(0, products[0]);
#pragma unroll
      for (int c = 0; c < kTimes; ++c) {
        if (c + 1 < kTimes) {
          begin_sums(c + 1, products[(c + 1) % 2]);
          wait_multiply<1>();
        } else {
          wait_multiply();
          if (threadIdx.x % kGroupThreads == 0) arrive(shared.empty[n % 2]);
        }
        take_product(products[c % 2]);
#pragma unroll
        for (int j = 0; j < 32; ++j)
          sums[c * 32 + j] = factors[j / 2 % 2].add(sums[c * 32 + j], products[c % 2][j]);
      }
    }

    if (cut.by_pair) {
      // Each block ends with half of the heads, and gets what the other has of them.
      auto* arrived = reinterpret_cast<float4*>(rows) + group * (kFours + 1) * 64 + threadIdx.x % 64;
      meet_cluster();  // nobody reads rows any more
      if (warp / 2 != block) {
        const uint32_t to = address_in(arrived, 1 - block);
#pragma unroll
        for (int j = 0; j < kFours; ++j)
          store_float4(to + j * (64 * 16), {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
        store_float4(to + kFours * (64 * 16),
                     {seen[0].largest, seen[0].total, seen[1].largest, seen[1].total});
      }
      meet_cluster();
      if (warp / 2 == block) {
        const float4 other_seen = arrived[kFours * 64];
        const Softmax other[2] = {{other_seen.x, other_seen.y}, {other_seen.z, other_seen.w}};
        Factors once[2], twice[2];
        float ends[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Softmax all = {-INFINITY, 0};
          once[half] = add(all, block == 0 ? seen[half] : other[half]);
          twice[half] = add(all, block == 0 ? other[half] : seen[half]);
          ends[half] = all.total == 0 ? 0 : 1 / all.total;
        }
#pragma unroll
        for (int j = 0; j < kFours; ++j) {
          const float4 own = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]},
                       x = arrived[j * 64];
          const float4 one = block == 0 ? own : x, two = block == 0 ? x : own;
          put(a, t, first_head, heads, row, group * (kLatentDim / 2) + 8 * j + lane % 4 * 2,
              add(add({}, one, once), two, twice), ends);
        }
      }
      return;
    }

    const Parts parts(memory, int64_t(blockIdx.y) * (gridDim.x / blocks) + blockIdx.x / blocks, a.heads,
                      parts_max);
    if (warp < parts.warps) {
#pragma unroll
      for (int j = 0; j < kFours; ++j)
        parts.at(part, group, j, warp, lane) = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2],
                                                sums[4 * j + 3]};
      if (group == 0 && lane % 4 == 0)
        for (int half = 0; half < 2; ++half) parts.seen(part, row + 8 * half) = seen[half];
    }
    part += blocks;
    if (part >= cut.parts) break;
  }
#endif
}

// Grid (2 * kFours * groups of heads, tokens). A thread adds four sums of all parts of a token.
__global__ void __launch_bounds__(kGroupThreads)
    add_parts_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int blocks, int parts_max,
                     float* memory) {
  begin_kernel();
  const int64_t t = first + blockIdx.y;
  const Cut cut = cut_of(used_slots(a, t), blocks, parts_max);
  const int heads_group = blockIdx.x / (2 * kFours), groups = gridDim.x / (2 * kFours);
  const Parts parts(memory, int64_t(blockIdx.y) * groups + heads_group, a.heads, parts_max);
  const int group = blockIdx.x / kFours % 2, four = blockIdx.x % kFours, warp = threadIdx.x / kWarp,
            lane = threadIdx.x % kWarp, row = warp * 16 + lane / 4;
  if (cut.by_pair || warp >= parts.warps) return;

  // Adds parts [begin, end) to what has been seen.
  const auto add_parts = [&](int begin, int end, Softmax(&seen)[2], float4& sum) {
    constexpr int kAtOnce = 16;
    for (int part = begin; part < end; part += kAtOnce) {
      float4 x[kAtOnce] = {};
      Softmax of_part[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        of_part[i][0] = of_part[i][1] = {-INFINITY, 0};
        if (part + i >= end) continue;
        x[i] = parts.at(part + i, group, four, warp, lane);
        for (int half = 0; half < 2; ++half) of_part[i][half] = parts.seen(part + i, row + 8 * half);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (part + i >= end) break;
        const Factors factors[2] = {add(seen[0], of_part[i][0]), add(seen[1], of_part[i][1])};
        sum = add(sum, x[i], factors);
      }
    }
  };
  Softmax all[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  float4 sum = {};
  if (cut.parts == cut.segments && cut.part_tiles > 1) {
    add_parts(0, cut.parts, all, sum);
  } else {
    for (int s = 0; s < cut.segments; ++s) {
      Softmax segment[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
      float4 x = {};
      add_parts(s * cut.segment_tiles, min((s + 1) * cut.segment_tiles, cut.tiles), segment, x);
      const Factors factors[2] = {add(all[0], segment[0]), add(all[1], segment[1])};
      sum = add(sum, x, factors);
    }
  }
  const float ends[2] = {all[0].total == 0 ? 0 : 1 / all[0].total, all[1].total == 0 ? 0 : 1 / all[1].total};
  const int first_head = heads_group * kHeads, heads = min(kHeads, a.heads - first_head);
  put(a, t, first_head, heads, row, group * (kLatentDim / 2) + 8 * four + lane % 4 * 2, sum, ends);
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
  int page_shift = 0;
  while (1 << page_shift < a.latents.page_rows) ++page_shift;
  const bool fits = a.route == Route::fast && a.latents.format == CacheFormat::bf16 &&
                    a.latent_dim == kLatentDim && a.rope_dim == kRopeDim &&
                    1 << page_shift == a.latents.page_rows && aligned(a);
  if (!fits) return cuda::sparse_attention(a, queue);

  // As many blocks as run together, a pair for each token at least.
  const int64_t groups = ceil_div(a.heads, kHeads), tiles = ceil_div(positions, kTileRows);
  const auto blocks_of = [&](int64_t tokens) {
    const int64_t pairs = cuda_queue.device().multiprocessors / (kPair * groups * tokens),
                  useful = ceil_div(tiles, kPair);
    return int(kPair * std::max<int64_t>(1, std::min(pairs, useful)));
  };
  const size_t scratch = cuda_queue.scratch_bytes() / sizeof(float) / size_t(groups);
  const int least = segments_of(int(tiles));
  const int64_t fit = least <= kPair ? a.tokens : int64_t(scratch / Parts::floats(a.heads, least));
  if (fit == 0) return cuda::sparse_attention(a, queue);

  auto* memory = static_cast<float*>(cuda_queue.scratch());
  for (int64_t first = 0; first < a.tokens; first += fit) {
    const int64_t tokens = std::min(fit, a.tokens - first);
    const int blocks = blocks_of(tokens);
    const int parts_max = int(std::min<int64_t>(std::min<int64_t>(tiles, kPartsMax),
                                                scratch / Parts::floats(a.heads, 1) / tokens));
    launch_clusters(queue, dim3(unsigned(blocks * groups), unsigned(tokens)), kPair, kThreads, kSharedBytes,
                    sparse_attention_kernel, a, int(first), blocks, parts_max, page_shift, memory);
    if (blocks > kPair || least > kPair)
      launch(queue, dim3(unsigned(2 * kFours * groups), unsigned(tokens)), kGroupThreads, 0,
             add_parts_kernel, a, int(first), blocks, parts_max, memory);
  }
}

}  // namespace dsa
