// kernels/sparse_attention/sparse_attention_sm90.cu: wgmma on 64 heads x tiles of 64 rows, for rows of 512 or 512 + 64
// values that are kept as bf16 or fp8.
//
// The slots of a token are cut into tiles, and the tiles into segments, by the length of its list alone. Each tile is
// attended to by itself; the tiles of a segment are added up in their order, then the segments in theirs. Who does that
// depends on how many tokens there are, and the bits do not: a pair of blocks takes two segments and adds them through
// its shared memory; or many blocks take a segment or a tile each, and a second kernel adds.
//
// In a block one warpgroup gathers rows into two buffers, where it makes bf16 of fp8. Two multiply: scores are the sum of
// what each has of them from half of the columns; each weighs half of the rows of a tile, and sums all of them for half
// of the outputs.
#include <algorithm>

#include "kernels/common/attention_sm90.cuh"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace {

constexpr int kLatentDim = 512, kRopeDim = 64, kLatentColumns = kLatentDim / 64;  // tiles side by side
constexpr int kHeads = 64, kPair = 2;
constexpr int kSegmentTiles = 16, kSegmentsMax = 128;  // tiles of a segment, unless there are too many
constexpr int kPartsMax = 256;                         // of a token that are kept for the second kernel
constexpr int kCostOfPart = 5;                         // of a tile that is one, in tiles that are not
constexpr int kOwnColumns = kLatentColumns / 2;        // of a group; both share those of rope
constexpr int kQueryBytes = kLatentColumns * kTileBytes;
constexpr int kMultiplyThreads = 2 * kGroupThreads, kThreads = kMultiplyThreads + kGroupThreads;
constexpr int kMeetMultiply = 1, kMeetAll = 2, kMeetPair = 3;  // barriers; of four pairs of warps
constexpr int kFours = 32;  // a thread has four sums each of: of two heads, two outputs
constexpr float kLog2E = 1.44269504f;

// What a head has seen: sums are of weights 2^(score - exponent), of which the largest is from 1/2 to 1, times values.
struct Softmax {
  float exponent, total;
};

struct Shared {
  float4 exchanged[2][4][kGroupThreads];  // scores of a group, then weights for it: operands of two steps
  float exponents[2][kHeads];             // of the largest weights of the halves
  Softmax seen[2][kHeads];                // by the block, in both halves of its tiles
  uint64_t full[2], empty[2];
  uint32_t used[2][2];  // of the buffers: a bit for each row of both halves
};
// Behind it in fp8: of the tile that is being decoded.
struct Scales {
  float4 of_row[kTileRows];
};
constexpr size_t shared_bytes(int columns, bool fp8) {
  return kQueryBytes + size_t(2) * columns * kTileBytes + sizeof(Shared) + (fp8 ? sizeof(Scales) : 0);
}
static_assert(shared_bytes(kLatentColumns + 1, true) <= 227 * 1024);

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
  const bool into_tiles = cut.tiles <= parts_max && kCostOfPart * ceil_of(cut.tiles, blocks) <
                                                        ceil_of(cut.segments, blocks) * cut.segment_tiles;
  cut.by_pair = !into_tiles && cut.segments <= kPair;
  cut.part_tiles = into_tiles ? 1 : cut.segment_tiles;
  cut.parts = into_tiles ? cut.tiles : cut.segments;
  return cut;
}

// Where the parts of a token and 64 heads lie: sums as the threads hold them, [parts, 2, kFours, warps, lanes], then
// what their heads have seen in the halves of tiles, [parts, 2, 16 warps].
struct Parts {
  float4* sums;
  Softmax* softmax;
  int warps;

  __host__ __device__ static size_t floats(int heads, int parts) {
    return size_t(parts) * warps_of(heads) * (2 * kFours * kWarp * 4 + 2 * 16 * 2);
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
  __device__ Softmax& seen(int part, int group, int head) const {
    return softmax[(part * 2 + group) * (warps * 16) + head];
  }
};

// 2^(x - exponent), and 0 where nothing has been seen.
__device__ float weight_of(float x, float exponent) {
  return power_of_two(x - (exponent == -INFINITY ? 0.f : exponent));
}

// How sums are added to those before: each has a factor. Never -0, so that sums may begin anywhere.
struct Factors {
  float before, next;

  __device__ float add(float sum, float x) const { return fmaf(sum, before, fmaf(x, next, 0.f)); }
};
__device__ Factors add(Softmax& seen, Softmax next) {
  const float exponent = fmaxf(seen.exponent, next.exponent);
  const Factors factors = {weight_of(seen.exponent, exponent), weight_of(next.exponent, exponent)};
  seen = {exponent, factors.add(seen.total, next.total)};
  return factors;
}
__device__ float scale_of(const Softmax (&halves)[2]) {
  const float total = halves[0].total + halves[1].total;
  return total == 0 ? 0 : 1 / total;
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

// A row in bytes, as it is kept.
template <int kColumns, bool kFp8>
constexpr int kRowBytes = kFp8 ? kLatentDim + int(sizeof(float4)) + (kColumns - kLatentColumns) * 128
                               : kColumns * 128;
static_assert(kLatentDim / kFp8Block * sizeof(float) == sizeof(float4));

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Eight codes of E4M3 as bf16 times `factors`, a pair that is the same. Codes moved to the places of bf16 are 2^-120 of
// their values, subnormals included.
__device__ uint4 decode(uint32_t low, uint32_t high, uint32_t factors) {
  const auto four = [&](uint32_t codes, uint32_t& first, uint32_t& second) {
    const uint32_t low_bytes = codes << 4 & 0xf0f0f0f0u,
                   high_bytes = (codes & 0x80808080u) | (codes >> 4 & 0x07070707u);
    first = multiply_bf16x2(__byte_perm(low_bytes, high_bytes, 0x5140), factors);
    second = multiply_bf16x2(__byte_perm(low_bytes, high_bytes, 0x7362), factors);
  };
  uint4 values;
  four(low, values.x, values.y);
  four(high, values.z, values.w);
  return values;
}

// Where the codes of piece c of a group wait in row r of their tile: the lanes that read 4 pieces of 2 rows use all banks.
__device__ int codes_at(int r, int c) { return r * 128 + ((c ^ (r & 1) << 2) << 4); }

// The rows of fp8 that a warp has gathered become 16 rows of the tiles, 128 values of all of them after the other. Codes
// wait in the upper half of the tiles, group g in tile 4 + g, where the lanes of a row have read them before one writes
// there. kTwice: 2^120 times a scale is more than bf16 holds.
template <bool kTwice>
__device__ void decode_rows(uint8_t* tiles, int first_row, const float4* scales) {
  const int lane = threadIdx.x % kWarp, c = lane % 4;
#pragma unroll 1
  for (int group = 0; group < kLatentColumns / 2; ++group) {
    const uint8_t* from = tiles + (kLatentColumns / 2 + group) * kTileBytes;
    uint8_t* to = tiles + 2 * group * kTileBytes;
    uint4 codes[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        codes[i][half] =
            *reinterpret_cast<const uint4*>(from + codes_at(first_row + 8 * i + lane / 4, 4 * half + c));
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i + lane / 4;
      const float scale = reinterpret_cast<const float*>(scales + row)[group] * (kTwice ? 1 : 0x1p120f);
      const uint32_t factors = round_to_bf16x2(scale, scale);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const uint4 x = codes[i][half];
          uint4 values = decode(k ? x.z : x.x, k ? x.w : x.y, factors);
          if (kTwice) {
            constexpr uint32_t kFactors = 0x7b807b80;  // 2^120
            values = {multiply_bf16x2(values.x, kFactors), multiply_bf16x2(values.y, kFactors),
                      multiply_bf16x2(values.z, kFactors), multiply_bf16x2(values.w, kFactors)};
          }
          *reinterpret_cast<uint4*>(to + half * kTileBytes + piece(row, 2 * c + k)) = values;
        }
    }
  }
}
__device__ void decode_rows(uint8_t* tiles, int first_row, const float4* scales) {
  const auto* of_lane = reinterpret_cast<const float2*>(scales + first_row) + threadIdx.x % kWarp;
  if (__any_sync(kAllLanes, fmaxf(of_lane->x, of_lane->y) > 0x1p7f))
    decode_rows<true>(tiles, first_row, scales);
  else
    decode_rows<false>(tiles, first_row, scales);
}
#endif

// Grid (`blocks` * groups of heads, tokens) in clusters of kPair. Reads each row once per 64 heads. Token `first` is the
// first of the grid; each keeps up to `parts_max` parts. A page has 2^page_shift rows. Rows are kColumns tiles wide.
template <int kColumns, bool kFp8>
__global__ void __launch_bounds__(kThreads, 1)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int blocks,
                            int parts_max, int page_shift, float* memory) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kRowsBytes = kColumns * kTileBytes;
  constexpr bool kRope = kColumns > kLatentColumns;
  uint8_t* q = shared_tiles();      // [kLatentColumns, heads, 64]; that of rope is kept in registers
  uint8_t* rows = q + kQueryBytes;  // [2, kColumns, 64, 64]
  Shared& shared = *reinterpret_cast<Shared*>(rows + 2 * kRowsBytes);
  Scales& scales = *reinterpret_cast<Scales*>(&shared + 1);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      init_barrier(shared.full[i], (kFp8 ? 0 : kGroupThreads) + kGroupThreads / kWarp);
      init_barrier(shared.empty[i], kMultiplyThreads / kWarp);
    }
    show_barriers();
  }
  __syncthreads();
  begin_kernel();
  const int block = blockIdx.x % blocks, first_head = blockIdx.x / blocks * kHeads,
            heads = min(kHeads, a.heads - first_head);
  const int64_t t = first + blockIdx.y;
  const int32_t* list = a.selected ? a.selected + t * a.top_k : nullptr;

  if (threadIdx.x >= kMultiplyThreads) {
    give_registers<kFp8 ? 56 : 40>();
    const int sequence = a.sequence_of[t];
    const int length = used_slots(a, t);
    const Cut cut = cut_of(length, blocks, parts_max);
    if (block >= (cut.by_pair ? kPair : cut.parts)) return;
    const int warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp, c = threadIdx.x % 8;
    const int parts = (cut.parts - block + blocks - 1) / blocks;  // of this block
    const bool last = parts > 0 && (cut.parts - 1) % blocks == block;
    const int tiles = parts * cut.part_tiles - (last ? cut.parts * cut.part_tiles - cut.tiles : 0);
    // Each warp gathers 16 rows of a tile. Its lanes find the rows of two tiles at once, one pair of tiles ahead, and
    // read the list two ahead.
    const int32_t* pages = a.latents.block_tables + int64_t(sequence) * a.latents.max_pages;
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
      const size_t offset = page * a.latents.page_stride + size_t(row) * kRowBytes<kColumns, kFp8>;
      const unsigned exist = __ballot_sync(kAllLanes, position >= 0);
      position = next, page = page_of(next), next = position_of(pair + 2);
#pragma unroll 1
      for (int i = 0; i < 2 && 2 * pair + i < tiles; ++i) {
        wait(shared.empty[i], pair % 2 ^ 1);
        if (lane == 0) reinterpret_cast<uint16_t*>(shared.used[i])[warp] = uint16_t(exist >> (16 * i));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int r = 4 * j + lane / 8, from = 16 * i + r;
          const char* values =
              static_cast<const char*>(a.latents.pages) + __shfl_sync(kAllLanes, offset, from) + c * 16;
          uint8_t* buffer = rows + i * kRowsBytes;
          uint8_t* to = buffer + piece(warp * 16 + r, c);
          const bool exists = exist >> from & 1;
          if constexpr (kFp8) {
#pragma unroll
            for (int group = 0; group < kLatentColumns / 2; ++group)
              copy_async(buffer + (kLatentColumns / 2 + group) * kTileBytes + codes_at(warp * 16 + r, c),
                         values + group * 128, exists);
            if (kRope)
              copy_async(to + kLatentColumns * kTileBytes, values + kLatentDim + sizeof(float4), exists);
            if (c == 0) copy_async(&scales.of_row[warp * 16 + r], values + kLatentDim, exists);
          } else {
#pragma unroll
            for (int column = 0; column < kColumns; ++column)
              copy_async(to + column * kTileBytes, values + column * 128, exists);
          }
        }
        if constexpr (kFp8) {
          commit_copies();
          wait_for_copies<0>();
          __syncwarp();
          decode_rows(rows + i * kRowsBytes, warp * 16, scales.of_row);
          show_to_products();
          __syncwarp();
        } else {
          arrive_with_copies(shared.full[i]);
        }
        if (lane == 0) arrive(shared.full[i]);
      }
    }
    wait_for_copies<0>();
    if (cut.by_pair) meet(kMeetAll, kThreads), meet_cluster(), leave_cluster();
    return;
  }

  take_registers<kFp8 ? 224 : 232>();
  const int group = warpgroup(), warp = threadIdx.x / kWarp % 4, lane = threadIdx.x % kWarp;
  const int row = warp * 16 + lane / 4;  // heads of the thread: this one and 8 below it

  // All of q is on its way before anything is waited for. Blocks begin at different places.
  constexpr int kPieces = kHeads * kLatentDim / 8 / kMultiplyThreads;
  float4 latent[kPieces][2] = {};
  float rope[2][4][2] = {};  // columns of two steps of the group
  const auto piece_at = [&](int j) { return int(threadIdx.x) + (j + block) % kPieces * kMultiplyThreads; };
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int i = piece_at(j);
    const auto* from =
        reinterpret_cast<const float4*>(a.q_latent + (t * a.heads + first_head) * kLatentDim) + 2 * i;
    if (i / (kLatentDim / 8) < heads) latent[j][0] = from[0], latent[j][1] = from[1];
  }
  if constexpr (kRope) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int h = row + j % 2 * 8, d = group * 32 + j / 2 * 8 + lane % 4 * 2;
      const float* from = a.q_rope + t * a.q_rope_token_stride + (first_head + h) * a.q_rope_head_stride + d;
      if (h < heads) rope[j / 4][j % 4][0] = from[0], rope[j / 4][j % 4][1] = from[1];
    }
  }
  const Cut cut = cut_of(used_slots(a, t), blocks, parts_max);
  if (block >= (cut.by_pair ? kPair : cut.parts)) return;
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int i = piece_at(j), h = i / (kLatentDim / 8), column = i / 8 % kLatentColumns;
    *reinterpret_cast<uint4*>(q + column * kTileBytes + piece(h, i % 8)) =
        piece_of(latent[j][0], latent[j][1]);
  }
  uint32_t q_rope[2][4];
#pragma unroll
  for (int j = 0; j < 8; ++j)
    q_rope[j / 4][j % 4] = round_to_bf16x2(rope[j / 4][j % 4][0], rope[j / 4][j % 4][1]);
  show_to_products();
  meet(kMeetMultiply, kMultiplyThreads);

  const float scale = a.scale * kLog2E;
  const int together = kMeetPair + warp;  // with the warp that scores the other half for the same heads
  float products[2][32];
  float(&scores)[32] = products[0];  // of a tile, before its products
  const auto begin_scores = [&](unsigned n) {
    wait(shared.full[n % 2], n / 2 % 2);
    show_to_products();
    begin_multiply();
    const uint8_t* tile = rows + n % 2 * kRowsBytes;
    const uint64_t q_operand = operand(q + group * (kOwnColumns * kTileBytes)),
                   k_operand = operand(tile + group * (kOwnColumns * kTileBytes)),
                   rope_operand = operand(tile + kLatentColumns * kTileBytes) + (group * 64 >> 4);
#pragma unroll
    for (int k = 0; k < kOwnColumns * 4; ++k) {
      const int at = (k / 4 * kTileBytes + k % 4 * 32) >> 4;
      multiply(scores, q_operand + at, k_operand + at, k > 0);
    }
    if constexpr (kRope) {
#pragma unroll
      for (int k = 0; k < 2; ++k) multiply<false>(scores, q_rope[k], rope_operand + (k * 32 >> 4), true);
    }
    commit_multiply();
  };
  auto* own_place = &shared.exchanged[group][0][threadIdx.x % kGroupThreads];
  auto* other_place = &shared.exchanged[1 - group][0][threadIdx.x % kGroupThreads];

  unsigned n = 0;  // tiles so far
  for (int part = block;; part += blocks) {
    float sums[4 * kFours] = {};
    Softmax seen[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    const int count = min(cut.part_tiles, cut.tiles - part * cut.part_tiles);
    if (count > 0) {
      begin_scores(n);
      wait_multiply();
      take_product(scores);
    }
    for (int left = count; left > 0;) {
      const uint32_t used = __shfl_sync(kAllLanes, lane == 0 ? shared.used[n % 2][group] : 0, 0);
      const auto give = [&](const float* x) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          own_place[j * kGroupThreads] = {x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]};
      };
      if (group == 0)
        give(scores + 16);
      else
        give(scores);
      meet(together, 2 * kWarp);
      float whole[16];  // scores of the own half
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 x = other_place[j * kGroupThreads];
        const float other[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int k = 0; k < 4; ++k)
          whole[4 * j + k] = ((group == 0 ? scores[4 * j + k] : scores[16 + 4 * j + k]) + other[k]) * scale;
      }
      if (used != ~0u) {
        const uint32_t of_thread = used >> (lane % 4 * 2);
#pragma unroll
        for (int j = 0; j < 16; ++j)
          if (!(of_thread >> (j / 4 * 8 + j % 2) & 1)) whole[j] = -INFINITY;
      }

      // Weights relative to the largest of the half, rounded up to a power of two.
      Softmax of_tile[2];
      uint32_t weights[4][4];  // operands of the four steps: first those of the own half
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY, total = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, whole[j / 2 * 4 + half * 2 + j % 2]);
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
        const float exponent = ceilf(largest);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t pair = round_to_bf16x2(weight_of(whole[4 * j + 2 * half], exponent),
                                                weight_of(whole[4 * j + 2 * half + 1], exponent));
          total += bits_to_f32(pair << 16) + bits_to_f32(pair & 0xffff0000u);
          weights[j / 2][j % 2 * 2 + half] = pair;
        }
        of_tile[half] = {exponent, total};
        if (lane % 4 == 0) shared.exponents[group][row + 8 * half] = exponent;
      }
#pragma unroll
      for (int step = 0; step < 2; ++step)
        *reinterpret_cast<uint4*>(&other_place[step * kGroupThreads]) = {weights[step][0], weights[step][1],
                                                                         weights[step][2], weights[step][3]};
      meet(together, 2 * kWarp);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 other = *reinterpret_cast<const uint4*>(&own_place[step * kGroupThreads]);
        weights[2 + step][0] = other.x, weights[2 + step][1] = other.y;
        weights[2 + step][2] = other.z, weights[2 + step][3] = other.w;
      }
      // Those of both halves relative to the same.
      Factors factors[2];
      float shrink[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float own = of_tile[half].exponent, other = shared.exponents[1 - group][row + 8 * half],
                    exponent = fmaxf(own, other);
        shrink[half] = weight_of(own, exponent);
        const float of_other = weight_of(other, exponent);
        const uint32_t own_pair = round_to_bf16x2(shrink[half], shrink[half]),
                       other_pair = round_to_bf16x2(of_other, of_other);
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
          for (int j = half; j < 4; j += 2) {
            weights[step][j] = multiply_bf16x2(weights[step][j], own_pair);
            weights[2 + step][j] = multiply_bf16x2(weights[2 + step][j], other_pair);
          }
        of_tile[half].exponent = exponent;
      }

      // Sums of the tile, 64 outputs at a time, are added to those before while the next ones are multiplied.
      constexpr int kTimes = kLatentDim / 2 / 64;
      const auto begin_sums = [&](int c) {
        const uint64_t v_operand =
            operand_turned(rows + n % 2 * kRowsBytes + (group * kTimes + c) * kTileBytes);
        begin_multiply();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          const int half = step < 2 ? group : 1 - group;
          multiply<true>(products[c % 2], weights[step], v_operand + ((half * 2 + step % 2) * 2048 >> 4),
                         step > 0);
        }
        commit_multiply();
      };
      const auto add_sums = [&](int c) {
        take_product(products[c % 2]);
#pragma unroll
        for (int j = 0; j < 32; ++j)
          sums[c * 32 + j] = factors[j / 2 % 2].add(sums[c * 32 + j], products[c % 2][j]);
      };
      begin_sums(0);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& total = of_tile[half].total;
        total += __shfl_xor_sync(kAllLanes, total, 1);
        total += __shfl_xor_sync(kAllLanes, total, 2);
        total *= shrink[half];
        factors[half] = add(seen[half], of_tile[half]);
      }
      begin_sums(1);
#pragma unroll
      for (int c = 0; c < kTimes - 1; ++c) {
        wait_multiply<1>();
        add_sums(c);
        if (c + 2 < kTimes) begin_sums(c + 2);
      }
      wait_multiply();
      if (lane == 0) arrive(shared.empty[n % 2]);
      ++n;
      if (--left == 0) {
        add_sums(kTimes - 1);
        break;
      }
      begin_scores(n);
      add_sums(kTimes - 1);
      wait_multiply();
      take_product(scores);
    }

    if (cut.by_pair) {
      // Each block ends with half of the outputs of both groups, and reads what the other has of them.
      if (lane % 4 == 0)
        for (int half = 0; half < 2; ++half) shared.seen[group][row + 8 * half] = seen[half];
      meet(kMeetAll, kThreads);  // nobody needs the rows any more
      constexpr int kEach = kFours / 2;
      auto* given = reinterpret_cast<float4*>(rows) + threadIdx.x;  // [kEach, threads]
      const auto give = [&](const float* part) {
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          given[j * kMultiplyThreads] = {part[4 * j], part[4 * j + 1], part[4 * j + 2], part[4 * j + 3]};
      };
      if (block == 0)
        give(sums + 4 * kEach);
      else
        give(sums);
      meet_cluster();
      float4 taken[kEach];
      const uint32_t from = address_in(given, 1 - block);
#pragma unroll
      for (int j = 0; j < kEach; ++j) taken[j] = load_float4(from + j * (kMultiplyThreads * 16));
      Factors once[2], twice[2];
      float ends[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Softmax all[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const Softmax own = shared.seen[i][row + 8 * half];
          const float2 x = load_float2(address_in(&shared.seen[i][row + 8 * half], 1 - block));
          const Softmax other = {x.x, x.y};
          all[i] = {-INFINITY, 0};
          once[half] = add(all[i], block == 0 ? own : other);
          twice[half] = add(all[i], block == 0 ? other : own);
        }
        ends[half] = scale_of(all);
      }
      const auto end = [&](const float* part, int d) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const float own[4] = {part[4 * j], part[4 * j + 1], part[4 * j + 2], part[4 * j + 3]},
                      other[4] = {taken[j].x, taken[j].y, taken[j].z, taken[j].w};
          float o[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float one = block == 0 ? own[k] : other[k], two = block == 0 ? other[k] : own[k];
            o[k] = twice[k / 2].add(once[k / 2].add(0.f, one), two) * ends[k / 2];
          }
          float* to = a.o + (t * a.heads + first_head + row) * kLatentDim + group * (kLatentDim / 2) + d +
                      8 * j + lane % 4 * 2;
          if (row < heads) *reinterpret_cast<float2*>(to) = {o[0], o[1]};
          if (row + 8 < heads) *reinterpret_cast<float2*>(to + 8 * kLatentDim) = {o[2], o[3]};
        }
      };
      if (block == 0)
        end(sums, 0);
      else
        end(sums + 4 * kEach, kLatentDim / 4);
      leave_cluster();
      return;
    }

    const Parts parts(memory, int64_t(blockIdx.y) * (gridDim.x / blocks) + blockIdx.x / blocks, a.heads,
                      parts_max);
    if (warp < parts.warps) {
#pragma unroll
      for (int j = 0; j < kFours; ++j)
        parts.at(part, group, j, warp, lane) = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2],
                                                sums[4 * j + 3]};
      if (lane % 4 == 0)
        for (int half = 0; half < 2; ++half) parts.seen(part, group, row + 8 * half) = seen[half];
    }
    if (part + blocks >= cut.parts) break;
  }
#endif
}

// What a head has seen in both halves of tiles, and two of its sums.
struct HeadSum {
  float exponent = -INFINITY, totals[2] = {}, values[2] = {};

  __device__ void add(const HeadSum& next) {
    const float largest = fmaxf(exponent, next.exponent);
    const Factors factors = {weight_of(exponent, largest), weight_of(next.exponent, largest)};
    exponent = largest;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      totals[i] = factors.add(totals[i], next.totals[i]);
      values[i] = factors.add(values[i], next.values[i]);
    }
  }
};

// Grid (2 * 2 * kFours * groups of heads, tokens). A block has 32 heads, and a thread two sums of one of them, of all
// parts of a token.
__global__ void __launch_bounds__(kGroupThreads)
    add_parts_kernel(const __grid_constant__ SparseAttentionArgs a, int first, int blocks, int parts_max,
                     float* memory) {
  const int64_t t = first + blockIdx.y;
  const int length = used_slots(a, t);  // older than the kernel before, which has waited for it
  begin_kernel();
  const int heads_group = blockIdx.x / (4 * kFours), groups = gridDim.x / (4 * kFours);
  const Parts parts(memory, int64_t(blockIdx.y) * groups + heads_group, a.heads, parts_max);
  const int group = blockIdx.x / (2 * kFours) % 2, four = blockIdx.x / 2 % kFours, half = threadIdx.x % 2,
            lane = threadIdx.x / 2 % kWarp, warp = blockIdx.x % 2 * 2 + threadIdx.x / (2 * kWarp),
            row = warp * 16 + lane / 4 + half * 8;
  const Cut cut = cut_of(length, blocks, parts_max);
  if (cut.by_pair || warp >= parts.warps) return;

  HeadSum all, segment;
  constexpr int kAtOnce = kSegmentTiles;
  const int of_segment = cut.segment_tiles / cut.part_tiles;  // parts
  int left = of_segment;
  for (int begin = 0; begin < cut.parts; begin += kAtOnce) {
    HeadSum of_part[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = min(begin + i, cut.parts - 1);
      const float2 values = reinterpret_cast<const float2*>(&parts.at(part, group, four, warp, lane))[half];
      const Softmax seen[2] = {parts.seen(part, 0, row), parts.seen(part, 1, row)};
      of_part[i].exponent = seen[0].exponent;
      of_part[i].totals[0] = seen[0].total, of_part[i].totals[1] = seen[1].total;
      of_part[i].values[0] = values.x, of_part[i].values[1] = values.y;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= cut.parts) break;
      segment.add(of_part[i]);
      if (--left == 0 || begin + i + 1 == cut.parts) all.add(segment), segment = {}, left = of_segment;
    }
  }
  const int h = heads_group * kHeads + row;
  const float total = all.totals[0] + all.totals[1], scale = total == 0 ? 0 : 1 / total;
  if (h < a.heads)
    *reinterpret_cast<float2*>(a.o + (t * a.heads + h) * kLatentDim + group * (kLatentDim / 2) + 8 * four +
                               lane % 4 * 2) = {all.values[0] * scale, all.values[1] * scale};
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
  const bool fp8 = a.latents.format == CacheFormat::fp8;
  const bool fits = a.route == Route::fast && a.latents.format != CacheFormat::f32 &&
                    a.latent_dim == kLatentDim && (!fp8 || a.latents.coded == kLatentDim) &&
                    (a.rope_dim == kRopeDim || a.rope_dim == 0) && 1 << page_shift == a.latents.page_rows &&
                    aligned(a);
  if (!fits) return cuda::sparse_attention(a, queue);

  // As many blocks as run together, a pair for each token at least; no more if a few are no use.
  const int64_t groups = ceil_div(a.heads, kHeads), tiles = ceil_div(positions, kTileRows);
  const int least = segments_of(int(tiles));
  const auto blocks_of = [&](int64_t tokens) {
    const int64_t pairs = cuda_queue.device().multiprocessors / (kPair * groups * tokens),
                  useful = ceil_div(tiles, kPair);
    const int64_t enough = least > kPair || pairs > kCostOfPart ? std::min(pairs, useful) : 1;
    return int(kPair * std::max<int64_t>(1, enough));
  };
  const size_t scratch = cuda_queue.scratch_bytes() / sizeof(float) / size_t(groups);
  const int64_t fit = least <= kPair ? a.tokens : int64_t(scratch / Parts::floats(a.heads, least));
  if (fit == 0) return cuda::sparse_attention(a, queue);

  auto* memory = static_cast<float*>(cuda_queue.scratch());
  for (int64_t first = 0; first < a.tokens; first += fit) {
    const int64_t tokens = std::min(fit, a.tokens - first);
    const int blocks = blocks_of(tokens);
    const int parts_max = int(
        std::min<int64_t>(std::min<int64_t>(tiles, kPartsMax), scratch / Parts::floats(a.heads, 1) / tokens));
    const auto attend = [&](auto* kernel) {
      launch_clusters(queue, dim3(unsigned(blocks * groups), unsigned(tokens)), kPair, kThreads,
                      shared_bytes(kLatentColumns + (a.rope_dim > 0), fp8), kernel, a, int(first), blocks,
                      parts_max, page_shift, memory);
    };
    if (a.rope_dim == 0)
      fp8 ? attend(sparse_attention_kernel<kLatentColumns, true>)
          : attend(sparse_attention_kernel<kLatentColumns, false>);
    else
      fp8 ? attend(sparse_attention_kernel<kLatentColumns + 1, true>)
          : attend(sparse_attention_kernel<kLatentColumns + 1, false>);
    if (blocks > kPair || least > kPair)
      launch(queue, dim3(unsigned(4 * kFours * groups), unsigned(tokens)), kGroupThreads, 0, add_parts_kernel,
             a, int(first), blocks, parts_max, memory);
  }
}

}  // namespace dsa
