// kernels/common/few_rows.cuh: rows times weights where reading the weights is all the time there is.
//
// A block walks over tiles of 16 outputs. Weights go through shared memory, kSlots - 1 slots ahead of their use and across
// the borders of tiles; they may be on their way before the kernel before has ended. The warps of a team take turns at the
// stretches of a tile as in product_tile, and sums are added in the same order: the bits are the same. Where inputs are
// few, a block has several teams with a tile each.
#pragma once

#include "kernels/common/cuda_places.cuh"
#include "kernels/common/products.cuh"

namespace dsa {

constexpr int kFewRows = 8;  // columns of an mma
constexpr int kSlots = 6;    // of weights of a warp

__host__ __device__ inline int stretches_of(int in_dim) { return (in_dim + kStretch - 1) / kStretch; }
// The stretches of a tile are added in so many parts, and then these; see product_tile.
__host__ __device__ inline int parts_of(int in_dim) {
  int parts = 1;
  while (parts < kProductWarps && parts < stretches_of(in_dim)) parts *= 2;
  return parts;
}
// Warps that share a tile: a power of two up to parts_of(in_dim), which is the most. Every number gives the same bits.
__host__ __device__ inline int team_size(int in_dim) { return parts_of(in_dim); }

// What a slot holds: a run of each lane for two rows, and the scales of 16 rows.
template <class Weights>
constexpr int kSlotVectors = 2 * Weights::kVectors* kWarp + (Weights::kScaled ? 8 : 0);  // uint4

// Shared memory of a block, in order: slots, sums, rows as pieces in the order of fragments.
template <class Weights>
constexpr size_t kSlotBytes = size_t(kProductWarps) * kSlots* kSlotVectors<Weights> * sizeof(uint4);
inline __host__ __device__ size_t few_rows_sum_bytes(int rows, int in_dim, int team) {
  return size_t(2) * size_t(kProductWarps / team) * size_t(parts_of(in_dim)) * rows * 16 * sizeof(float);
}
template <int kPiecesX>
__host__ __device__ inline size_t kept_bytes(int rows, int in_dim) {
  return size_t(rows) * stretches_of(in_dim) * kStretch * sizeof(bf16) * kPiecesX;
}
// `rows` are multiplied at once, `kept` of them lie in shared memory.
template <class Weights, int kPiecesX>
__host__ __device__ inline size_t few_rows_bytes(int rows, int kept, int in_dim, int team) {
  return kSlotBytes<Weights> + few_rows_sum_bytes(rows, in_dim, team) + kept_bytes<kPiecesX>(kept, in_dim);
}
template <class Weights, int kPiecesX>
__host__ __device__ inline size_t few_rows_bytes(int rows, int kept, int in_dim) {
  return few_rows_bytes<Weights, kPiecesX>(rows, kept, in_dim, team_size(in_dim));
}

// Puts inputs 8 octet .. 8 octet + 7 of a row where products read them.
template <class Weights, int kPiecesX>
__device__ void keep_octet(uint4* kept, int octet, const float (&value)[8]) {
  constexpr int kOctets = Weights::kRun / 8;
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
// The same for a row; all threads of the block share the work. read(k, value) gives inputs k .. k + 7.
template <class Weights, int kPiecesX, class Read>
__device__ void keep_row(uint4* kept, int in_dim, const Read& read) {
  for (int octet = threadIdx.x; octet < stretches_of(in_dim) * (kStretch / 8); octet += blockDim.x) {
    float value[8] = {};
    if (octet * 8 < in_dim) read(octet * 8, value);
    keep_octet<Weights, kPiecesX>(kept, octet, value);
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

// An MXFP4 matrix as shared memory holds it.
struct SharedMatrix {
  const uint8_t *blocks, *scales;
};

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
        parts_(parts_of(in_dim)),
        tiles_(tiles),
        first_(first),
        step_(step),
        inputs_(in_dim - (Weights::kTransposed ? lane() : lane() % 4 * Weights::kRun)),
        vectors_(place_of(shared + warp() * kSlots * kSlotVectors<Weights> +
                          (Weights::kTransposed ? 2 : 1) * lane())),
        words_(place_of(
            reinterpret_cast<uint32_t*>(shared + warp() * kSlots * kSlotVectors<Weights> + 2 * kWarp) +
            lane())),
        sums_(reinterpret_cast<float*>(shared + kSlotBytes<Weights> / sizeof(uint4))),
        kept_(shared + (kSlotBytes<Weights> + few_rows_sum_bytes(rows, in_dim, team)) / sizeof(uint4)) {}

  // Where rows are kept, by keep_row.
  __device__ uint4* kept(int row) const {
    return kept_ + int64_t(row) * kept_bytes<kPiecesX>(1, in_dim_) / sizeof(uint4);
  }

  // Sends the first weights on their way.
  __device__ void start() {
    ahead_.slot_at = 0;
    aim(first_);
    for (int i = 0; i < kSlots - 1; ++i) fetch();
  }

  // All sums: finish(tile, number of the tile, row, output, sum), by one thread for each row and output of tiles, which takes
  // the tiles in rising order. The rows are kept, and the block has met since.
  template <class Finish>
  __device__ void run(const Finish& finish) {
    const int group = lane() / 4, quad = lane() % 4, stretches = stretches_of(in_dim_),
              rounds = this->rounds();
    int slot_at = 0;
    bool odd = false;
    for (int round = first_; round < rounds; round += step_, odd = !odd) {
      const Tile tile = tile_of(round);
      const SharedPlace rows = place_of(kept(tile.row + (group < rows_ ? group : 0)) + quad * kPiecesX);
      const int o = tile.o_begin + group, last = max(tile.out_dim - 1, 0);
      bool nan[2] = {};
      SharedPlace scales[2] = {};  // of both rows of this lane in the first slot
      if constexpr (Weights::kScaled) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          scales[half] = words_ - 4 * lane() + 8 * (8 * half + group) + quad +
                         int(uint64_t(tile.w.scale_address(min(o + 8 * half, last), 0)) % 4);
      }
      const auto scale = [&](int stretch, int half) {  // both are known before they are needed
        return tile.out_dim > 0 && stretch < stretches
                   ? tile.w.scale(min(o + 8 * half, last), stretch * kStretch)
                   : 0.f;
      };
      float low_next = scale(member(), 0), high_next = scale(member(), 1);
      float* sums = sums_ + (odd ? teams() * parts_ * rows_ * 16 : 0);  // [team, part, row, output]
      for (int part = member(); part < parts_; part += team_) {
        float total[4] = {};
        for (int stretch = part; stretch < stretches; stretch += parts_) {
          const float low = low_next, high = high_next;
          const int after = stretch + parts_ < stretches ? stretch + parts_ : part + team_;
          low_next = scale(after, 0), high_next = scale(after, 1);
          float sum[4] = {};
#pragma unroll 1
          for (int run = 0; run < kRuns; ++run) {
            wait_for_copies<kSlots - 2>();
            if constexpr (Weights::kScaled || Weights::kTransposed)
              __syncwarp();  // lanes copy for each other
            fetch();
            multiply(tile.w, slot_at, scales,
                     rows + (stretch * (kStretch / 8) + run * 4 * kOctets) * kPiecesX * int(sizeof(uint4)),
                     sum, nan);
            slot_at = next(slot_at);
          }
          total[0] += low * sum[0], total[1] += low * sum[1];
          total[2] += high * sum[2], total[3] += high * sum[3];
        }
        const unsigned lanes = 15u << 4 * group;
        const bool nan_low = __ballot_sync(kAllLanes, nan[0]) & lanes,
                   nan_high = __ballot_sync(kAllLanes, nan[1]) & lanes;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int r = 2 * quad + i % 2;
          if (r < rows_)
            sums[((warp() / team_ * parts_ + part) * rows_ + r) * 16 + 8 * (i / 2) + group] =
                (i < 2 ? nan_low : nan_high) ? NAN : total[i];
        }
      }

      __syncthreads();  // the sums of the round before have been added by all who come here
      for (int i = threadIdx.x; i < rows_ * 16; i += kProductWarps * kWarp)
        for (int team = 0; team < teams(); ++team) {
          const int number = round * teams() + team;
          if (number >= tiles_) break;
          const Tile to = locate_(number);
          if (to.o_begin + i % 16 >= to.out_dim) continue;
          float all = 0;
#pragma unroll
          for (int part = 0; part < kProductWarps; ++part)
            if (part < parts_) all += sums[(team * parts_ + part) * rows_ * 16 + i];
          finish(to, number, i / 16, to.o_begin + i % 16, all);
        }
    }
    wait_for_copies<0>();
  }

 private:
  static constexpr int kRuns = kStretch / (4 * Weights::kRun), kOctets = Weights::kRun / 8;
  // The slot that is fetched next.
  struct Ahead {
    int round, part, stretch, run, slot_at;
    bool more;
    const char* rows[2];   // of this lane, from its first input on; null: there is none
    const uint8_t* words;  // around the scales of a row, of which this lane copies every second one
    int words_left;        // bytes from there to the end of the row
  };

  __device__ static int lane() { return int(threadIdx.x) % kWarp; }
  __device__ static int warp() { return int(threadIdx.x) / kWarp; }
  // The slot behind one, of this warp.
  __device__ static int next(int slot_at) {
    constexpr int kBytes = kSlotVectors<Weights> * int(sizeof(uint4));
    return slot_at + kBytes < kSlots * kBytes ? slot_at + kBytes : 0;
  }
  __device__ int member() const { return warp() % team_; }
  __device__ int teams() const { return kProductWarps / team_; }
  __device__ int rounds() const { return (tiles_ + teams() - 1) / teams(); }
  __device__ Tile tile_of(int round) const {
    const int number = round * teams() + warp() / team_;
    return round < rounds() && number < tiles_ ? locate_(number) : Tile{};
  }

  // Turns to the first slot of a round.
  __device__ void aim(int round) {
    const int group = lane() / 4;
    const Tile tile = tile_of(round);
    ahead_.round = round, ahead_.part = ahead_.stretch = member(), ahead_.run = 0;
    ahead_.more = tile.out_dim > 0 && ahead_.stretch < stretches_of(in_dim_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int o = tile.o_begin + 8 * half + (Weights::kTransposed ? 0 : group);
      const int64_t first = in_dim_ - inputs_;
      const auto* row = static_cast<const char*>(Weights::kTransposed ? tile.w.address(first, o)
                                                                      : tile.w.address(o, int(first)));
      ahead_.rows[half] = o < tile.out_dim ? row : nullptr;
    }
    if constexpr (Weights::kTransposed) stride_ = tile.w.row_stride * int64_t(sizeof(bf16));
    if constexpr (Weights::kScaled) {
      const int o = tile.o_begin + lane() / 2, skipped = 4 * (lane() % 2);
      const bool exists = o < tile.out_dim;
      const uint8_t* scales = exists ? tile.w.scale_address(o, 0) : nullptr;
      const int before = int(uint64_t(scales) % 4);
      ahead_.words = scales - before + skipped;
      ahead_.words_left = exists ? in_dim_ / kMxfp4Block + before - skipped : 0;
    }
  }

  // One more slot, or an empty group of copies.
  __device__ void fetch() {
    if (ahead_.more) {
      const int begin = ahead_.stretch * kStretch + 4 * ahead_.run * Weights::kRun, at = ahead_.slot_at;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const char* from = ahead_.rows[half];
        const bool exists = from != nullptr && begin < inputs_;
        if constexpr (Weights::kTransposed) {  // 32 rows of 16 outputs
          copy_async_to(vectors_ + at + 16 * half, from + begin * stride_, exists);
        } else {
#pragma unroll
          for (int i = 0; i < Weights::kVectors; ++i)
            copy_async_to(vectors_ + at + (half * Weights::kVectors + i) * kWarp * 16,
                          from + begin * Weights::kBits / 8 + 16 * i, exists);
        }
      }
      if constexpr (Weights::kScaled) {  // the two words around the four scales of a row
        const int block = begin / kMxfp4Block;
        copy_word_async(words_ + at, ahead_.words + block, max(0, min(4, ahead_.words_left - block)));
      }
      ahead_.slot_at = next(at);
      if (++ahead_.run == kRuns) {
        ahead_.run = 0, ahead_.stretch += parts_;
        if (ahead_.stretch >= stretches_of(in_dim_)) {
          ahead_.stretch = ahead_.part += team_;
          if (ahead_.part >= parts_ || ahead_.part >= stretches_of(in_dim_)) aim(ahead_.round + step_);
        }
      }
    }
    commit_copies();
  }

  // Weights that do not exist are zero.
  __device__ void multiply(const Weights& w, int slot_at, const SharedPlace (&scales)[2], SharedPlace rows,
                           float (&sum)[4], bool (&nan)[2]) const {
    typename Weights::Raw raw[2];
    bool large = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint4 vectors[Weights::kVectors];
      if constexpr (Weights::kTransposed) {
        const SharedPlace values =
            vectors_ - 32 * lane() + slot_at + (lane() % 4 * 8 * 16 + 8 * half + lane() / 4) * 2;
        const auto pair = [&](int i) {
          return load_half(values + 2 * i * 32) | load_half(values + (2 * i + 1) * 32) << 16;
        };
        vectors[0] = {pair(0), pair(1), pair(2), pair(3)};
      } else {
#pragma unroll
        for (int i = 0; i < Weights::kVectors; ++i)
          vectors[i] = load_vector(vectors_ + slot_at + (half * Weights::kVectors + i) * kWarp * 16);
      }
      uint32_t scale = 0;
      if constexpr (Weights::kScaled) {
        scale = load_byte(scales[half] + slot_at);
        large |= scale > 128;
      }
      raw[half] = Weights::raw(vectors, scale);
    }
    if constexpr (Weights::kScaled) {
      if (__ballot_sync(kAllLanes, large)) return multiply<true>(w, raw, rows, sum, nan);
    }
    multiply<false>(w, raw, rows, sum, nan);
  }

  template <bool kLarge>
  __device__ void multiply(const Weights& w, const typename Weights::Raw (&raw)[2], SharedPlace rows,
                           float (&sum)[4], bool (&nan)[2]) const {
    constexpr int kPiecesW = Weights::kPieces, kMost = kPiecesX > kPiecesW ? kPiecesX : kPiecesW;
    const int group = lane() / 4;
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
      uint4 column[kPiecesX] = {};
      if (group < rows_) {
#pragma unroll
        for (int piece = 0; piece < kPiecesX; ++piece)
          column[piece] = load_vector(rows + (octet * 4 * kPiecesX + piece) * int(sizeof(uint4)));
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
  const int in_dim_, rows_, team_, parts_, tiles_, first_, step_;
  const int inputs_;           // from the first one of this lane on
  const SharedPlace vectors_;  // of this lane in the first slot of its warp
  const SharedPlace words_;    // the same of words of scales
  float* const sums_;
  uint4* const kept_;
  Ahead ahead_;
  int64_t stride_ = 0;  // bytes from input to input of transposed weights
};

}  // namespace dsa
