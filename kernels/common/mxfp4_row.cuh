// kernels/common/mxfp4_row.cuh: one row times MXFP4 matrices of whole stretches and whole tiles, on the fast route of
// mxfp4_rows.cuh and with its bits.
//
// What FewRows does, with fewer instructions for a weight: of one row, they take as long as memory does. A tile is always
// shared by as many warps as it has parts, scales come with the weights, and the sums of many tiles wait to be added.
#pragma once

#include "kernels/common/mxfp4_rows.cuh"

namespace dsa {

// Of 16 outputs: where their rows begin.
struct Mxfp4Tile {
  const uint8_t *blocks, *scales;
};
__device__ inline Mxfp4Tile mxfp4_tile(const uint8_t* blocks, const uint8_t* scales, int in_dim, int tile) {
  return {blocks + int64_t(tile) * (16 * in_dim / 2), scales + int64_t(tile) * (16 * in_dim / kMxfp4Block)};
}

// Whether a product is one of the fast route.
template <class Product>
constexpr bool kMxfp4Fast = false;
template <int kRows>
constexpr bool kMxfp4Fast<Mxfp4Product<kRows>> = true;

__host__ __device__ inline bool whole_mxfp4_tiles(int in_dim, int out_dim) {
  return in_dim % kMxfp4Stretch == 0 && out_dim % 16 == 0;
}
__device__ inline bool aligned_scales(const uint8_t* scales) { return uint64_t(scales) % 8 == 0; }

// Shared memory of a block, in order: slots of the warps, sums, tiles that the warps know, zeros, rows. A slot holds a
// stretch of 16 rows, codes before scales.
struct Mxfp4RowPlaces {
  static constexpr int kSlots = 4;
  static constexpr int kCodeBytes = 16 * kSlotRowBytes, kStretchScales = kMxfp4Stretch / kMxfp4Block,
                       kSlotBytes = kCodeBytes + 16 * kStretchScales;
  static constexpr int kRounds = 16;  // whose sums wait, and whose tiles a warp knows
  static constexpr int kSums = kProductWarps * kSlots * kSlotBytes,
                       kTiles = kSums + kRounds * kProductWarps * 16 * int(sizeof(float)),
                       kZeros = kTiles + kProductWarps * kRounds * int(sizeof(Mxfp4Tile)),
                       kRows = kZeros + 512;
};
__host__ __device__ inline size_t mxfp4_row_bytes(int rows, int in_dim) {
  return Mxfp4RowPlaces::kRows + rows * Mxfp4Product<1>::kept_bytes(in_dim);
}
// Tiles of a block at once.
__host__ __device__ inline int mxfp4_row_teams(int in_dim) {
  return kProductWarps / parts_of<Mxfp4Weights>(in_dim);
}

// locate(i) is tile i of the `tiles` of a block, for those with aligned scales. Tile i multiplies kept row i % rows.
// kKnown: tiles are located for many rounds at once, by a lane each, which is faster where locate divides.
template <bool kKnown, class Locate>
class Mxfp4Row : Mxfp4RowPlaces {
 public:
  using Product = Mxfp4Product<1>;

  __device__ Mxfp4Row(uint4* shared, int in_dim, int rows, int tiles, const Locate& locate)
      : locate_(locate),
        stretches_(kept_int(in_dim / kMxfp4Stretch)),
        parts_(kept_int(parts_of<Mxfp4Weights>(in_dim))),
        teams_(kProductWarps / parts_),
        rows_(rows),
        tiles_(tiles),
        row_bytes_(hidden(uint32_t(Product::kept_bytes(in_dim)))),
        further_(hidden(uint32_t(in_dim) * 2)),
        of_lane_(kept_int(lane() / 8 * (in_dim / 2) + lane() % 8 * 16)),
        scales_of_lane_(kept_int(lane() % 16 * (in_dim / kMxfp4Block))),
        shared_(shared),
        slots_(place_of(shared) + warp() * (kSlots * kSlotBytes)),
        copies_(slots_ + place_in_slot<Mxfp4Weights>(lane() / 8, lane() % 8)),
        scale_copies_(slots_ + kCodeBytes + lane() % 16 * kStretchScales) {}

  // Where rows are kept, by keep_octet of Product.
  __device__ uint4* kept(int row) const {
    return shared_ + (uint32_t(kRows) + row * row_bytes_) / sizeof(uint4);
  }

  // Sends the first weights on their way.
  __device__ void start() {
    if (threadIdx.x < (kRows - kZeros) / sizeof(uint4)) shared_[kZeros / sizeof(uint4) + threadIdx.x] = {};
    aim(0);
#pragma unroll 1
    for (int i = 0; i < kSlots - 1; ++i) fetch(i * kSlotBytes);
  }

  // All sums: finish(i, output, sum), by some thread. The rows are kept, and the block has met since.
  template <class Finish>
  __device__ void run(const Finish& finish) {
    run<false>(finish);
  }
  // The same by one thread for each output, which takes the tiles in rising order.
  template <class Finish>
  __device__ void run_in_order(const Finish& finish) {
    run<true>(finish);
  }

 private:
  // Worked out once, and not again in each round.
  __device__ static int kept_int(int value) { return int(hidden(uint32_t(value))); }
  __device__ static int lane() { return int(threadIdx.x % kWarp); }
  __device__ static int warp() { return int(threadIdx.x / kWarp); }
  __device__ int team() const { return warp() / parts_; }
  // Another one in each round, so that all warps get long parts and short ones.
  __device__ int part_of(int round) const { return (warp() + 3 * round) & (parts_ - 1); }

  // Turns to the first slot of a round, or of the next in which this warp has one.
  __device__ void aim(int round) {
    if (stretches_ < parts_)
      while (part_of(round) >= stretches_) ++round;
    ahead_.round = round, ahead_.tile = round * teams_ + team();
    if (ahead_.tile >= tiles_) return;
    Mxfp4Tile tile;
    if constexpr (kKnown) {
      auto* known = reinterpret_cast<Mxfp4Tile*>(shared_ + kTiles / sizeof(uint4)) + warp() * kRounds;
      if (round >= ahead_.known) {
        const int first = round & -kRounds, i = (first + lane()) * teams_ + team();
        ahead_.known = first + kRounds;
        __syncwarp();
        if (lane() < kRounds && i < tiles_) known[lane()] = locate_(i);
        __syncwarp();
      }
      tile = known[round & (kRounds - 1)];
    } else {
      tile = locate_(ahead_.tile);
    }
    ahead_.stretch = part_of(round);
    ahead_.from = tile.blocks + (of_lane_ + ahead_.stretch * kSlotRowBytes);
    ahead_.scales_from = tile.scales + (scales_of_lane_ + ahead_.stretch * kStretchScales);
  }

  // One more slot, at slot_at, or an empty group of copies.
  __device__ void fetch(int slot_at) {
    if (ahead_.tile < tiles_) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        copy_async_to(copies_ + slot_at + 4 * i * kSlotRowBytes, ahead_.from + i * further_, true);
      if (lane() < 16) copy_async_8_to(scale_copies_ + slot_at, ahead_.scales_from);
      ahead_.stretch += parts_;
      ahead_.from += parts_ * kSlotRowBytes, ahead_.scales_from += parts_ * kStretchScales;
      if (ahead_.stretch >= stretches_) aim(ahead_.round + 1);
    }
    commit_copies();
  }

  template <bool kInOrder, class Finish>
  __device__ void run(const Finish& finish) {
    const uint32_t low = hidden(kLowTwice);
    const int group = kept_int(lane() / 4), quad = kept_int(lane() % 4),
              rounds = (tiles_ + teams_ - 1) / teams_, row_step = teams_ % rows_;
    const bool mine = group / 2 == quad;  // a column has the inputs of one block, and zeros
    const int codes[2] = {kept_int(place_in_slot<Mxfp4Weights>(group, quad)),
                          kept_int(place_in_slot<Mxfp4Weights>(group, 4 + quad))},
              scales = kept_int(kCodeBytes + group * kStretchScales + quad);
    const SharedPlace rows = place_of(kept(0)), columns = rows + quad * 64 + group % 2 * 32,
                      units = rows + stretches_ * (2 * kMxfp4Stretch),
                      zeros = rows - (kRows - kZeros) + 16;  // in banks that the columns leave
    float* const sums = reinterpret_cast<float*>(shared_ + kSums / sizeof(uint4));
    int slot_at = 0, free_at = (kSlots - 1) * kSlotBytes, row = team() % rows_, tile = team();
    for (int begin = 0; begin < rounds; begin += kRounds) {
      const int end = min(begin + kRounds, rounds);
      float* to = sums + team() * parts_ * 16 + 8 * quad + group;  // of the first part in a round
      for (int round = begin; round < end && tile < tiles_; ++round) {
        const int part = part_of(round);
        float total[2] = {};
        for (int stretch = part; stretch < stretches_; stretch += parts_) {
          wait_for_copies<kSlots - 2>();
          __syncwarp();  // lanes copy for each other
          fetch(free_at);
          const SharedPlace slot = slots_ + slot_at,
                            at = mine ? columns + (row * row_bytes_ + stretch * (2 * kMxfp4Stretch)) : zeros;
          free_at = slot_at;
          slot_at = slot_at < (kSlots - 1) * kSlotBytes ? slot_at + kSlotBytes : 0;
          float sum[2] = {};
#pragma unroll
          for (int run = 0; run < 2; ++run) {
            uint4 vectors[2], column[2];
            uint32_t code[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              vectors[i] = load_vector(slot + codes[run] + 8 * i * kSlotRowBytes);
              column[i] = load_vector(at + run * 256 + 16 * i);
              code[i] = load_byte(slot + scales + 8 * i * kStretchScales + 4 * run);
            }
            const WeightBytes weights(vectors, low);
            BlockSums of_block;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              of_block.add(weights, 2 * i, column[i].x, column[i].y);
              of_block.add(weights, 2 * i + 1, column[i].z, column[i].w);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) sum[half] += block_scale(code[half]) * of_block.of(half);
          }
          const float unit = bits_to_f32(load_word(units + row * row_bytes_ + 4 * stretch));
          total[0] += unit * sum[0], total[1] += unit * sum[1];
        }
        // Even lanes take the first output, odd ones the second.
        const bool odd = quad % 2 != 0;
        const float given = __shfl_xor_sync(kAllLanes, odd ? total[0] : total[1], 1);
        float all = (odd ? total[1] : total[0]) + given;
        all += __shfl_xor_sync(kAllLanes, all, 2);
        if (quad < 2) to[part * 16] = all;
        to += kProductWarps * 16, tile += teams_;
        row += row_step;
        if (row >= rows_) row -= rows_;
      }

      __syncthreads();
      const int first = begin * teams_, count = min(end * teams_, tiles_) - first;
      for (int i = threadIdx.x; i < count * 16; i += kProductWarps * kWarp) {
        float* of_tile = sums + i / 16 * (parts_ * 16) + i % 16;
        float all = 0;
        for (int part = 0; part < parts_; ++part) all += of_tile[part * 16];
        if constexpr (kInOrder)
          *of_tile = all;
        else
          finish(first + i / 16, i % 16, all);
      }
      if constexpr (kInOrder) {
        __syncthreads();
        if (threadIdx.x < 16)
          for (int i = 0; i < count; ++i)
            finish(first + i, int(threadIdx.x), sums[i * (parts_ * 16) + int(threadIdx.x)]);
      }
      if (end < rounds) __syncthreads();
    }
    wait_for_copies<0>();
  }

  const Locate& locate_;
  const int stretches_, parts_, teams_, rows_, tiles_;
  const uint32_t row_bytes_;            // of a kept row
  const uint32_t further_;              // bytes from a row of weights to the one 4 behind it
  const int of_lane_, scales_of_lane_;  // bytes from the first row of a tile to what this lane copies
  uint4* const shared_;
  const SharedPlace slots_, copies_, scale_copies_;
  // The slot that is fetched next.
  struct {
    int round, tile, stretch, known = 0;          // the warp knows its tiles of rounds up to that one
    const uint8_t *from = {}, *scales_from = {};  // of this lane
  } ahead_;
};

// Keeps a row of whole stretches as keep_row does. start() comes behind the first reads: what it asks memory for would be
// before them otherwise.
template <class Product, class Read, class Start>
__device__ void keep_row_and_start(uint4* kept, int in_dim, const Read& read, const Start& start) {
  constexpr int kThreads = kProductWarps * kWarp, kTogether = 4;  // octets whose values a thread waits for
  const int octets = in_dim / 8;
  bool started = false;
  for (int first = threadIdx.x; first < octets || !started; first += kTogether * kThreads) {
    float value[kTogether][8] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (const int octet = first + i * kThreads; octet < octets) read(8 * octet, value[i]);
    if (!started) start();
    started = true;
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (const int octet = first + i * kThreads; octet < octets)
        Product::keep_octet(kept, in_dim, octet, value[i]);
  }
}

}  // namespace dsa
