// kernels/common/few_rows.cuh: rows times weights where reading the weights is all the time there is.
//
// A block walks over tiles of 16 outputs. Weights go through shared memory, kSlots - 1 slots ahead of their use and across
// the borders of tiles; they may be on their way before the kernel before has ended. The warps of a team take turns at the
// stretches of a tile as in product_tile, and sums are added in the same order: the bits are the same. Where inputs are
// few, a block has several teams with a tile each.
#pragma once

#include "kernels/common/cuda_word_copy.cuh"
#include "kernels/common/products.cuh"

namespace dsa {

constexpr int kFewRows = 8;  // columns of an mma
constexpr int kSlots = 6;    // of weights of a warp

__host__ __device__ inline int stretches_of(int in_dim) { return (in_dim + kStretch - 1) / kStretch; }
// Warps that share the inputs of a tile.
__host__ __device__ inline int team_size(int in_dim) {
  int warps = 1;
  while (warps < kProductWarps && warps < stretches_of(in_dim)) warps *= 2;
  return warps;
}

// What a slot holds: a run of each lane for two rows, and the scales of 16 rows.
template <class Weights>
constexpr int kSlotVectors = 2 * Weights::kVectors* kWarp + (Weights::kScaled ? 8 : 0);  // uint4

// Shared memory of a block, in order: slots, sums, rows as pieces in the order of fragments.
template <class Weights>
constexpr size_t kSlotBytes = size_t(kProductWarps) * kSlots* kSlotVectors<Weights> * sizeof(uint4);
inline __host__ __device__ size_t few_rows_sum_bytes(int rows) {
  return size_t(2) * kProductWarps * rows * 16 * sizeof(float);
}
template <int kPiecesX>
__host__ __device__ inline size_t kept_bytes(int rows, int in_dim) {
  return size_t(rows) * stretches_of(in_dim) * kStretch * sizeof(bf16) * kPiecesX;
}
// `rows` are multiplied at once, `kept` of them lie in shared memory.
template <class Weights, int kPiecesX>
__host__ __device__ inline size_t few_rows_bytes(int rows, int kept, int in_dim) {
  return kSlotBytes<Weights> + few_rows_sum_bytes(rows) + kept_bytes<kPiecesX>(kept, in_dim);
}

// Puts a row where products read it; all threads of the block share the work. read(k, value) gives inputs k .. k + 7.
template <class Weights, int kPiecesX, class Read>
__device__ void keep_row(uint4* kept, int in_dim, const Read& read) {
  constexpr int kOctets = Weights::kRun / 8;
  for (int octet = threadIdx.x; octet < stretches_of(in_dim) * (kStretch / 8); octet += blockDim.x) {
    float value[8] = {};
    if (octet * 8 < in_dim) read(octet * 8, value);
    uint32_t pairs[4][kPiecesX];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      cut(value[Weights::kApart ? pair : 2 * pair], value[Weights::kApart ? pair + 4 : 2 * pair + 1],
          pairs[pair]);
    const int run = octet / (4 * kOctets) * kOctets * 4, of_run = octet % kOctets,
              of_quad = octet / kOctets % 4;
#pragma unroll
    for (int piece = 0; piece < kPiecesX; ++piece)
      kept[(run + of_run * 4 + of_quad) * kPiecesX + piece] = {pairs[0][piece], pairs[1][piece],
                                                               pairs[2][piece], pairs[3][piece]};
  }
}
// Inputs k .. k + 7 of a row in global memory; in_dim is a multiple of 8.
__device__ inline void read_octet(const float* row, int k, float (&value)[8]) {
  if (uint64_t(row) % 16 == 0) {
    const float4 low = *reinterpret_cast<const float4*>(row + k),
                 high = *reinterpret_cast<const float4*>(row + k + 4);
    value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
    value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = row[k + i];
  }
}

// 16 outputs of a matrix, and which of the kept rows it multiplies first.
template <class Weights>
struct FewRowsTile {
  Weights w;
  int o_begin = 0, out_dim = 0;  // out_dim 0: nothing
  int row = 0;
};

// locate(i) is tile i of `tiles`; the block takes those of rounds first, first + step, and so on.
template <class Weights, int kPiecesX, class Locate>
class FewRows {
 public:
  using Tile = FewRowsTile<Weights>;

  __device__ FewRows(uint4* shared, int in_dim, int rows, int team, int tiles, int first, int step,
                     const Locate& locate)
      : locate_(locate),
        in_dim_(in_dim),
        rows_(rows),
        team_(team),
        tiles_(tiles),
        first_(first),
        step_(step),
        slots_(shared + threadIdx.x / kWarp * kSlots * kSlotVectors<Weights>),
        sums_(reinterpret_cast<float*>(shared + kSlotBytes<Weights> / sizeof(uint4))),
        kept_(shared + (kSlotBytes<Weights> + few_rows_sum_bytes(rows)) / sizeof(uint4)) {}

  // Where rows are kept, by keep_row.
  __device__ uint4* kept(int row) const {
    return kept_ + int64_t(row) * kept_bytes<kPiecesX>(1, in_dim_) / sizeof(uint4);
  }

  // Sends the first weights on their way.
  __device__ void start() {
    ahead_ = {first_, member(), 0, 0, tile_of(first_)};
    for (int i = 0; i < kSlots - 1; ++i) fetch();
  }

  // All sums: finish(tile, number of the tile, row, output, sum). The rows are kept, and the block has met since.
  template <class Finish>
  __device__ void run(const Finish& finish) {
    const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4, warp = threadIdx.x / kWarp;
    const int stretches = stretches_of(in_dim_), rounds = this->rounds();
    int slot = 0;
    bool odd = false;
    for (int round = first_; round < rounds; round += step_, odd = !odd) {
      const Tile tile = tile_of(round);
      const uint4* rows = kept(tile.row + (group < rows_ ? group : 0));
      float total[4] = {};
      bool nan[2] = {};
      for (int stretch = member(); stretch < stretches; stretch += team_) {
        float sum[4] = {};
#pragma unroll 1
        for (int run = 0; run < kRuns; ++run) {
          wait_for_copies<kSlots - 2>();
          if constexpr (Weights::kScaled || Weights::kTransposed) __syncwarp();  // lanes copy for each other
          fetch();
          multiply(tile, slots_ + slot * kSlotVectors<Weights>, stretch, run, rows, sum, nan);
          slot = slot + 1 < kSlots ? slot + 1 : 0;
        }
        const int o = tile.o_begin + group;
        const float low = o < tile.out_dim ? tile.w.scale(o, stretch * kStretch) : 0,
                    high = o + 8 < tile.out_dim ? tile.w.scale(o + 8, stretch * kStretch) : 0;
        total[0] += low * sum[0], total[1] += low * sum[1];
        total[2] += high * sum[2], total[3] += high * sum[3];
      }

      float* sums = sums_ + (odd ? kProductWarps * rows_ * 16 : 0);  // [warp, row, output]
      const unsigned lanes = 15u << 4 * group;
      const bool nan_low = __ballot_sync(kAllLanes, nan[0]) & lanes,
                 nan_high = __ballot_sync(kAllLanes, nan[1]) & lanes;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = 2 * quad + i % 2;
        if (r < rows_)
          sums[(warp * rows_ + r) * 16 + 8 * (i / 2) + group] = (i < 2 ? nan_low : nan_high) ? NAN : total[i];
      }
      __syncthreads();  // the sums of the round before have been added by all who come here
      const int of_team = rows_ * 16;
      for (int i = threadIdx.x; i < kProductWarps / team_ * of_team; i += kProductWarps * kWarp) {
        const int team = i / of_team, number = round * (kProductWarps / team_) + team;
        if (number >= tiles_) continue;
        const Tile to = locate_(number);
        const int r = i % of_team / 16, o = to.o_begin + i % 16;
        if (o >= to.out_dim) continue;
        float all = 0;
        for (int part = 0; part < team_; ++part)
          all += sums[(team * team_ * rows_ + part * rows_ + r) * 16 + i % 16];
        finish(to, number, r, o, all);
      }
    }
    wait_for_copies<0>();
  }

 private:
  static constexpr int kRuns = kStretch / (4 * Weights::kRun), kOctets = Weights::kRun / 8;
  struct Ahead {
    int round, stretch, run, slot;
    Tile tile;
  };

  __device__ int member() const { return threadIdx.x / kWarp % team_; }
  __device__ int rounds() const {
    const int teams = kProductWarps / team_;
    return (tiles_ + teams - 1) / teams;
  }
  __device__ Tile tile_of(int round) const {
    const int number = round * (kProductWarps / team_) + int(threadIdx.x) / kWarp / team_;
    return round < rounds() && number < tiles_ ? locate_(number) : Tile{};
  }

  // One more slot, or an empty group of copies.
  __device__ void fetch() {
    const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
    if (ahead_.tile.out_dim > 0 && ahead_.stretch < stretches_of(in_dim_)) {
      uint4* slot = slots_ + ahead_.slot * kSlotVectors<Weights>;
      const Tile& tile = ahead_.tile;
      const int begin = ahead_.stretch * kStretch + 4 * ahead_.run * Weights::kRun;
      const int k = begin + quad * Weights::kRun;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (Weights::kTransposed) {  // 32 rows of 16 outputs
          const int o = tile.o_begin + 8 * half, row = begin + lane;
          const bool exists = o < tile.out_dim && row < in_dim_;
          copy_async(slot + 2 * lane + half, tile.w.data + (exists ? row * tile.w.row_stride + o : 0),
                     exists);
          continue;
        }
        const int o = tile.o_begin + 8 * half + group;
        const bool exists = o < tile.out_dim && k < in_dim_;
        const auto* from = static_cast<const uint4*>(tile.w.address(exists ? o : 0, exists ? k : 0));
#pragma unroll
        for (int i = 0; i < Weights::kVectors; ++i)
          copy_async(slot + (half * Weights::kVectors + i) * kWarp + lane, from + i, exists);
      }
      if constexpr (Weights::kScaled) {  // the two words around the four scales of a row
        const int o = tile.o_begin + lane / 2, count = min(4, (in_dim_ - begin) / kMxfp4Block);
        const uint8_t* scales = tile.w.scale_address(o < tile.out_dim ? o : 0, begin);
        const int before = int(uint64_t(scales) % 4), word = lane % 2;
        copy_word_async(reinterpret_cast<uint32_t*>(slot + 2 * kWarp) + lane, scales - before + 4 * word,
                        o < tile.out_dim ? max(0, min(4, before + count - 4 * word)) : 0);
      }
      if (++ahead_.run == kRuns) ahead_.run = 0, ahead_.stretch += team_;
      if (ahead_.stretch >= stretches_of(in_dim_))
        ahead_.stretch = member(), ahead_.round += step_, ahead_.tile = tile_of(ahead_.round);
      ahead_.slot = ahead_.slot + 1 < kSlots ? ahead_.slot + 1 : 0;
    }
    commit_copies();
  }

  __device__ void multiply(const Tile& tile, const uint4* slot, int stretch, int run, const uint4* rows,
                           float (&sum)[4], bool (&nan)[2]) const {
    const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
    typename Weights::Raw raw[2];
    bool large = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 vectors[Weights::kVectors];
#pragma unroll
      for (int i = 0; i < Weights::kVectors; ++i)
        vectors[i] = slot[(half * Weights::kVectors + i) * kWarp + lane];
      if constexpr (Weights::kTransposed) {
        const auto* values = reinterpret_cast<const uint16_t*>(slot) + quad * 8 * 16 + 8 * half + group;
        const auto pair = [&](int i) {
          return values[2 * i * 16] | uint32_t(values[(2 * i + 1) * 16]) << 16;
        };
        vectors[0] = {pair(0), pair(1), pair(2), pair(3)};
      }
      uint32_t scale = 0;
      if constexpr (Weights::kScaled) {
        const int o = tile.o_begin + 8 * half + group, begin = stretch * kStretch;
        if (o < tile.out_dim && begin + quad * Weights::kRun < in_dim_) {
          const auto* bytes = reinterpret_cast<const uint8_t*>(slot + 2 * kWarp) + 8 * (8 * half + group);
          scale = bytes[uint64_t(tile.w.scale_address(o, begin)) % 4 + quad];
        }
        large |= scale > 128;
      }
      raw[half] = Weights::raw(vectors, scale);
    }
    if constexpr (Weights::kScaled) {
      if (__ballot_sync(kAllLanes, large)) return multiply<true>(tile.w, raw, stretch, run, rows, sum, nan);
    }
    multiply<false>(tile.w, raw, stretch, run, rows, sum, nan);
  }

  template <bool kLarge>
  __device__ void multiply(const Weights& w, const typename Weights::Raw (&raw)[2], int stretch, int run,
                           const uint4* rows, float (&sum)[4], bool (&nan)[2]) const {
    constexpr int kPiecesW = Weights::kPieces, kMost = kPiecesX > kPiecesW ? kPiecesX : kPiecesW;
    const int lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
    const uint4* at = rows + (stretch * (kStretch / 8) + run * 4 * kOctets + quad) * kPiecesX;
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      uint4 column[kPiecesX] = {};
      if (group < rows_) {
#pragma unroll
        for (int piece = 0; piece < kPiecesX; ++piece) column[piece] = at[octet * 4 * kPiecesX + piece];
      }
      uint32_t low[4][kPiecesW], high[4][kPiecesW];
      if constexpr (Weights::kScaled) {
        w.template octet<kLarge>(raw[0], octet, low, nan[0]);
        w.template octet<kLarge>(raw[1], octet, high, nan[1]);
      } else {
        w.octet(raw[0], octet, low, nan[0]);
        w.octet(raw[1], octet, high, nan[1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kPiecesW; ++i) {
          const uint32_t a[4] = {low[2 * half][i], high[2 * half][i], low[2 * half + 1][i],
                                 high[2 * half + 1][i]};
#pragma unroll
          for (int j = 0; j + i < kMost && j < kPiecesX; ++j) {
            const uint32_t b[2] = {half ? column[j].z : column[j].x, half ? column[j].w : column[j].y};
            mma(sum, a, b);
          }
        }
    }
  }

  const Locate& locate_;
  const int in_dim_, rows_, team_, tiles_, first_, step_;
  uint4* const slots_;
  float* const sums_;
  uint4* const kept_;
  Ahead ahead_;
};

}  // namespace dsa
