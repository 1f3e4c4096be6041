// kernels/common/few_rows.cuh: rows times weights where reading the weights is all the time there is.
//
// A block walks over tiles of 16 outputs. Weights go through shared memory, Product::kSlots - 1 slots ahead of their use and across
// the borders of tiles; they may be on their way before the kernel before has ended. A slot holds 128 bytes of 16 rows:
// whole lines of the caches, which memory gives at full speed. The warps of a team take turns at the stretches of a tile as
// in product_tile, and sums are added in the same order: the bits are the same. Where inputs are few, a block has several
// teams with a tile each.
#pragma once

#include "kernels/common/cuda_places.cuh"
#include "kernels/common/products.cuh"

namespace dsa {

constexpr int kFewRows = 8;  // columns of an mma
constexpr int kSlotRowBytes = 128, kSlotBytes = 16 * kSlotRowBytes;
template <class Product>
constexpr size_t kSlotsBytes = size_t(kProductWarps) * Product::kSlots* kSlotBytes;  // of a block

template <class Weights>
__host__ __device__ int stretches_of(int in_dim) {
  return (in_dim + Weights::kStretch - 1) / Weights::kStretch;
}
// The stretches of a tile are added in so many parts, and then these; see product_tile.
template <class Weights>
__host__ __device__ int parts_of(int in_dim) {
  int parts = 1;
  while (parts < kProductWarps && parts < stretches_of<Weights>(in_dim)) parts *= 2;
  return parts;
}

// Shared memory of a block, in order: slots, sums, rows as Product keeps them. `rows` are multiplied at once, `kept` of them
// lie in shared memory. `team` warps share a tile: a power of two up to parts_of(in_dim). Every number gives the same bits.
// A warp alone adds its parts as they come.
template <class Weights>
__host__ __device__ int kept_parts_of(int in_dim, int team) {
  return team == 1 ? 1 : parts_of<Weights>(in_dim);
}
template <class Product>
__host__ __device__ size_t few_rows_sum_bytes(int rows, int in_dim, int team) {
  return size_t(2) * size_t(kProductWarps / team) *
         size_t(kept_parts_of<typename Product::Weights>(in_dim, team)) * rows * 16 * sizeof(float);
}
template <class Product>
__host__ __device__ size_t few_rows_bytes(int rows, int kept, int in_dim, int team) {
  return kSlotsBytes<Product> + few_rows_sum_bytes<Product>(rows, in_dim, team) +
         kept * Product::kept_bytes(in_dim);
}
template <class Product>
__host__ __device__ size_t few_rows_bytes(int rows, int in_dim) {
  return few_rows_bytes<Product>(rows, rows, in_dim, parts_of<typename Product::Weights>(in_dim));
}
// Blocks of a multiprocessor that are there at once.
template <class Product>
int few_rows_blocks(size_t shared_bytes, size_t shared_bytes_max) {
  const size_t reserved = 1024, fit = (shared_bytes_max + reserved) / (shared_bytes + reserved);
  return int(fit < Product::kBlocks ? fit : Product::kBlocks);
}
// The rows that fit beside the rest; 0: none.
template <class Product>
int few_rows_at_once(int rows, int in_dim, size_t shared_bytes_max) {
  rows = rows < kFewRows ? rows : kFewRows;
  while (rows > 0 && few_rows_bytes<Product>(rows, in_dim) > shared_bytes_max) --rows;
  return rows;
}

// The team with which the slowest warp of `blocks` blocks has the least to do: the end of a round costs as much as a stretch.
template <class Weights>
int best_team(int in_dim, int64_t tiles, int64_t blocks) {
  const int parts = parts_of<Weights>(in_dim), stretches = stretches_of<Weights>(in_dim);
  int best = parts;
  int64_t fewest = INT64_MAX;
  for (int team = parts; team > 0; team /= 2) {
    const int64_t teams = blocks * (kProductWarps / team);
    int longest = 0;  // of the first warp of a team
    for (int part = 0; part < parts; part += team) longest += (stretches - part + parts - 1) / parts;
    const int64_t most = (tiles + teams - 1) / teams * (longest + 1);
    if (most < fewest) best = team, fewest = most;
  }
  return best;
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

// Puts a row where products read it; all threads of the block share the work. read(k, value) gives inputs k .. k + 7.
template <class Product, class Read>
__device__ void keep_row(uint4* kept, int in_dim, const Read& read) {
  constexpr int kThreads = kProductWarps * kWarp, kTogether = 2;  // octets whose values a thread waits for
  const int octets = stretches_of<typename Product::Weights>(in_dim) * (Product::Weights::kStretch / 8);
  for (int first = threadIdx.x; first < octets; first += kTogether * kThreads) {
    float value[kTogether][8] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (const int k = 8 * (first + i * kThreads); k < in_dim) read(k, value[i]);
#pragma unroll
    for (int i = 0; i < kTogether; ++i)
      if (const int octet = first + i * kThreads; octet < octets)
        Product::keep_octet(kept, in_dim, octet, value[i]);
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

// Where a slot holds the 16 bytes `piece` of a row: eight lanes that read two rows meet no bank twice.
template <class Weights>
__device__ int place_in_slot(int row, int piece) {
  return row * kSlotRowBytes + (piece ^ (row & 1) * (Weights::kVectors == 1 ? 4 : 1)) * 16;
}

// Products of pieces, as in product_tile. An octet lies as kPiecesX vectors.
template <class W, int kPiecesX>
class PieceProduct {
 public:
  using Weights = W;
  using Tile = FewRowsTile<W>;
  static constexpr int kBlocks = 2;  // of a multiprocessor
  static constexpr int kMost = 1;
  static constexpr int kSlots = 4, kSlotInputs = kSlotRowBytes * 8 / W::kBits;

  // Half a line more than the inputs: eight lanes that read two rows meet no bank twice.
  static __host__ __device__ size_t kept_bytes(int in_dim) {
    static_assert(kPiecesX % 2 == 1);
    return size_t(stretches_of<W>(in_dim)) * W::kStretch * sizeof(bf16) * kPiecesX + 64;
  }
  // Inputs 8 octet .. 8 octet + 7 of a row.
  static __device__ void keep_octet(uint4* kept, int, int octet, const float (&value)[8]) {
    uint32_t pairs[4][kPiecesX];
    float zero = 0;  // NaN if a value is not finite
#pragma unroll
    for (int i = 0; i < 8; ++i) zero = fmaf(value[i], 0.f, zero);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float low = value[W::kApart ? pair : 2 * pair], high = value[W::kApart ? pair + 4 : 2 * pair + 1];
      zero == 0 ? cut_finite(low, high, pairs[pair]) : cut(low, high, pairs[pair]);
    }
    const int run = octet / (4 * kOctets) * kOctets * 4, of_run = octet % kOctets,
              of_quad = octet / kOctets % 4;
#pragma unroll
    for (int piece = 0; piece < kPiecesX; ++piece)
      kept[(run + of_run * 4 + of_quad) * kPiecesX + piece] = {pairs[0][piece], pairs[1][piece],
                                                               pairs[2][piece], pairs[3][piece]};
  }

  __device__ PieceProduct(int in_dim, int rows) : in_dim_(in_dim), rows_(rows) {}

  // What a stretch needs beside the slots is read ahead, of the tile that was aimed at.
  __device__ void aim(const Tile& tile) { ahead_ = tile; }
  __device__ void read_ahead(int stretch) {
    const Tile& tile = ahead_;
    if (tile.out_dim == 0 || stretch >= stretches_of<W>(in_dim_)) return;
    const int last = tile.out_dim - 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int o = min(tile.o_begin + 8 * half + lane() / 4, last);
      if constexpr (W::kScaled) {
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
          const int k = stretch * W::kStretch + (4 * run + lane() % 4) * W::kRun;
          codes_next_[half][run] = k < in_dim_ ? *tile.w.scale_address(o, k) : 0;
        }
      }
      next_[half] = tile.w.scale(o, stretch * W::kStretch);
    }
  }
  __device__ void clear(SharedPlace kept) {
    kept_ = kept + (lane() / 4 < rows_ ? lane() / 4 : 0) * int(kept_bytes(in_dim_)) +
            lane() % 4 * kPiecesX * int(sizeof(uint4));
#pragma unroll
    for (int i = 0; i < 4; ++i) total_[i] = 0;
  }
  // The sums so far of weights that are never NaN, and how to go on from there after clear().
  __device__ float4 sums() const { return {total_[0], total_[1], total_[2], total_[3]}; }
  __device__ void resume(const float4& sums) {
    total_[0] = sums.x, total_[1] = sums.y, total_[2] = sums.z, total_[3] = sums.w;
  }
  __device__ void begin(const Tile&) { nan_[0] = nan_[1] = false; }

  // next_slot() is the place of the next slot, again and again; after() reads ahead for the next stretch.
  template <class NextSlot, class After>
  __device__ void multiply(const Tile& tile, int stretch, const NextSlot& next_slot, const After& after) {
    const float scale[2] = {next_[0], next_[1]};
    uint32_t codes[2][kRuns];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int run = 0; run < kRuns; ++run) codes[half][run] = codes_next_[half][run];
    after();
    float sum[4] = {};
#pragma unroll
    for (int slot_of = 0; slot_of < W::kStretch / kSlotInputs; ++slot_of) {
      const SharedPlace slot = next_slot();
#pragma unroll
      for (int of_slot = 0; of_slot < kRunsOfSlot; ++of_slot) {
        const int run = slot_of * kRunsOfSlot + of_slot;
        typename W::Raw raw[2];
        bool large = false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint4 vectors[W::kVectors];
          read(slot, of_slot, half, vectors);
          const uint32_t code = W::kScaled ? codes[half][run] : 0;
          large |= code > 128;
          raw[half] = W::raw(vectors, code);
        }
        const SharedPlace at =
            kept_ + (stretch * (W::kStretch / 8) + run * 4 * kOctets) * kPiecesX * int(sizeof(uint4));
        if constexpr (W::kScaled) {
          if (__ballot_sync(kAllLanes, large)) {
            multiply_run<true>(tile.w, raw, at, sum);
            continue;
          }
        }
        multiply_run<false>(tile.w, raw, at, sum);
      }
    }
    total_[0] += scale[0] * sum[0], total_[1] += scale[0] * sum[1];
    total_[2] += scale[1] * sum[2], total_[3] += scale[1] * sum[3];
  }

  // The sums of a part, [row, output]. More: they are added to what is there.
  __device__ void put(float* sums, bool more) const {
    const int group = lane() / 4;
    const unsigned lanes = 15u << 4 * group;
    const bool nan[2] = {(__ballot_sync(kAllLanes, nan_[0]) & lanes) != 0,
                         (__ballot_sync(kAllLanes, nan_[1]) & lanes) != 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 2 * (lane() % 4) + i % 2;
      if (r >= rows_) continue;
      float& to = sums[r * 16 + 8 * (i / 2) + group];
      const float sum = nan[i / 2] ? NAN : total_[i];
      to = more ? to + sum : sum;
    }
  }

 private:
  static constexpr int kRuns = W::kStretch / (4 * W::kRun), kOctets = W::kRun / 8,
                       kRunsOfSlot = kSlotInputs / (4 * W::kRun);
  __device__ static int lane() { return int(threadIdx.x) % kWarp; }

  // As cut.
  __device__ static void cut_finite(float low, float high, uint32_t (&pieces)[kPiecesX]) {
#pragma unroll
    for (int i = 0; i < kPiecesX; ++i) {
      const uint32_t first = f32_to_bits(low), second = f32_to_bits(high);
      pieces[i] = first >> 16 | (second & 0xffff0000u);
      low -= bits_to_f32(first & 0xffff0000u), high -= bits_to_f32(second & 0xffff0000u);
    }
  }

  __device__ static void read(SharedPlace slot, int run, int half, uint4 (&vectors)[W::kVectors]) {
    const int row = 8 * half + lane() / 4, quad = lane() % 4;
    if constexpr (W::kTransposed) {  // 64 rows of 16 outputs
      const SharedPlace values = slot + (32 * run + quad * 8) * 32 + row * 2;
      const auto pair = [&](int i) {
        return load_half(values + 2 * i * 32) | load_half(values + (2 * i + 1) * 32) << 16;
      };
      vectors[0] = {pair(0), pair(1), pair(2), pair(3)};
    } else {
#pragma unroll
      for (int i = 0; i < W::kVectors; ++i)
        vectors[i] = load_vector(slot + place_in_slot<W>(row, (4 * run + quad) * W::kVectors + i));
    }
  }

  template <bool kLarge>
  __device__ void multiply_run(const W& w, const typename W::Raw (&raw)[2], SharedPlace at, float (&sum)[4]) {
    constexpr int kPiecesW = W::kPieces, kMost = kPiecesX > kPiecesW ? kPiecesX : kPiecesW;
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) {
#pragma unroll
      for (int piece = 0; piece < kPiecesX; ++piece)
        load_vector_if(lane() / 4 < rows_, at + (octet * 4 * kPiecesX + piece) * int(sizeof(uint4)),
                       column_[piece]);
      uint32_t low[4][kPiecesW], high[4][kPiecesW];
      if constexpr (W::kScaled) {
        w.template octet<kLarge>(raw[0], octet, low, nan_[0]);
        w.template octet<kLarge>(raw[1], octet, high, nan_[1]);
      } else {
        w.octet(raw[0], octet, low, nan_[0]);
        w.octet(raw[1], octet, high, nan_[1]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kPiecesW; ++i) {
          const uint32_t a[4] = {low[2 * half][i], high[2 * half][i], low[2 * half + 1][i],
                                 high[2 * half + 1][i]};
#pragma unroll
          for (int j = 0; j + i < kMost && j < kPiecesX; ++j) {
            const uint32_t b[2] = {half ? column_[j].z : column_[j].x, half ? column_[j].w : column_[j].y};
            mma(sum, a, b);
          }
        }
    }
  }

  const int in_dim_, rows_;
  Tile ahead_;
  SharedPlace kept_ = {};
  float total_[4] = {}, next_[2] = {};
  uint32_t codes_next_[2][kRuns] = {};
  bool nan_[2] = {};
  uint4 column_[kPiecesX] = {};  // zero in lanes without a row
};

// locate(i) is tile i of `tiles`; the block takes those of rounds first, first + step, and so on.
template <class Product, class Locate>
class FewRows {
 public:
  using Weights = typename Product::Weights;
  using Tile = FewRowsTile<Weights>;

  __device__ FewRows(uint4* shared, int in_dim, int rows, int team, int tiles, int first, int step,
                     const Locate& locate)
      : locate_(locate),
        in_dim_(in_dim),
        rows_(rows),
        team_(team),
        parts_(parts_of<Weights>(in_dim)),
        kept_parts_(kept_parts_of<Weights>(in_dim, team)),
        tiles_(tiles),
        first_(first),
        step_(step),
        slots_(place_of(shared + warp() * kSlots * kSlotBytes / sizeof(uint4))),
        sums_(reinterpret_cast<float*>(shared + kSlotsBytes<Product> / sizeof(uint4))),
        kept_(shared +
              (kSlotsBytes<Product> + few_rows_sum_bytes<Product>(rows, in_dim, team)) / sizeof(uint4)) {
    if constexpr (Weights::kTransposed) {
      inputs_ = in_dim - lane();
      copies_ = slots_ + 32 * lane();
    } else {
      inputs_ = in_dim - lane() % 8 * (128 / Weights::kBits);
      copies_ = slots_ + place_in_slot<Weights>(lane() / 8, lane() % 8);
    }
  }

  // Where rows are kept, by keep_row.
  __device__ uint4* kept(int row) const {
    return kept_ + int64_t(row) * Product::kept_bytes(in_dim_) / sizeof(uint4);
  }

  // Sends the first weights on their way.
  __device__ void start() {
    ahead_.slot_at = 0;
    aim(first_, 0);
    for (int i = 0; i < kSlots - 1; ++i) fetch();
  }

  // All sums: finish(tile, number of the tile, row, output, sum, early), by some thread. The rows are kept, and the block has
  // met since. early(number, row, output) is called before the products of the tile, and what it gave is there at the end.
  template <class Early, class Finish>
  __device__ void run(const Early& early, const Finish& finish) {
    run<false>(early, finish);
  }
  template <class Finish>
  __device__ void run(const Finish& finish) {
    run<false>([](int, int, int) { return 0.f; }, [&](const Tile& tile, int number, int row, int o, float sum,
                                                      float) { finish(tile, number, row, o, sum); });
  }
  // The same by one thread for each row and output of tiles, which takes the tiles in rising order.
  template <class Finish>
  __device__ void run_in_order(const Finish& finish) {
    run<true>([](int, int, int) { return 0.f; }, [&](const Tile& tile, int number, int row, int o, float sum,
                                                     float) { finish(tile, number, row, o, sum); });
  }

 private:
  template <bool kInOrder, class Early, class Finish>
  __device__ void run(const Early& early, const Finish& finish) {
    const int stretches = stretches_of<Weights>(in_dim_), rounds = this->rounds();
    Product product(in_dim_, rows_);
    int slot_at = 0, turn = 0;
    Tile tile = tile_of(first_);
    product.aim(tile);
    product.read_ahead(member(turn));
    bool odd = false;
    for (int round = first_; round < rounds; round += step_, odd = !odd, ++turn) {
      const Tile next = tile_of(round + step_);
      float* sums = sums_ + (odd ? teams() * kept_parts_ * rows_ * 16 : 0);  // [team, part, row, output]
      const auto output_of = [&](int i, int team, const auto& use) {
        const int number = round * teams() + team;
        if (number >= tiles_) return;
        const Tile to = locate_(number);
        const int o = to.o_begin + i % 16;
        if (o < to.out_dim) use(to, number, i / 16, o);
      };
      float first = 0;
      if (int(threadIdx.x) < rows_ * 16)
        output_of(int(threadIdx.x), 0,
                  [&](const Tile&, int number, int row, int o) { first = early(number, row, o); });

      const auto turn_to_next = [&] {
        product.aim(next);
        product.read_ahead(member(turn + 1));
      };
      product.begin(tile);
      if (member(turn) >= stretches) turn_to_next();
      for (int part = member(turn); tile.out_dim > 0 && part < parts_; part += team_) {
        product.clear(place_of(kept(tile.row)));
        for (int stretch = part; stretch < stretches; stretch += parts_) {
          const auto next_slot = [&] {
            wait_for_copies<kSlots - 2>();
            __syncwarp();  // lanes copy for each other
            fetch();
            const SharedPlace slot = slots_ + slot_at;
            slot_at = slot_after(slot_at);
            return slot;
          };
          product.multiply(tile, stretch, next_slot, [&] {
            if (stretch + parts_ < stretches)
              product.read_ahead(stretch + parts_);
            else if (part + team_ < min(parts_, stretches))
              product.read_ahead(part + team_);
            else
              turn_to_next();
          });
        }
        product.put(sums + (warp() / team_ * kept_parts_ + (team_ == 1 ? 0 : part)) * rows_ * 16,
                    team_ == 1 && part > 0);
      }
      tile = next;

      __syncthreads();  // the sums of the round before have been added by all who come here
      const auto add = [&](int i, int team) {
        output_of(i, team, [&](const Tile& to, int number, int row, int o) {
          float all = 0;
#pragma unroll
          for (int part = 0; part < kProductWarps; ++part)
            if (part < kept_parts_) all += sums[(team * kept_parts_ + part) * rows_ * 16 + i];
          finish(to, number, row, o, all, team == 0 ? first : early(number, row, o));
        });
      };
      const int outputs = rows_ * 16;  // of a tile; fewer than there are threads
      if constexpr (kInOrder) {
        if (int(threadIdx.x) < outputs)
          for (int team = 0; team < teams(); ++team) add(threadIdx.x, team);
      } else {
        for (int i = threadIdx.x; i < teams() * outputs; i += kProductWarps * kWarp)
          add(i % outputs, i / outputs);
      }
    }
    wait_for_copies<0>();
  }

  static constexpr int kSlots = Product::kSlots;
  static constexpr int kSlotsOfStretch = Weights::kStretch / Product::kSlotInputs;
  // The slot that is fetched next.
  struct Ahead {
    int round, turn, part, stretch, slot, slot_at;
    bool more;
    const char* row;        // of this lane, from its first input on
    uint32_t further[4];    // bytes from there to the other rows of this lane
    const uint8_t* scales;  // of a row, which are read a stretch ahead
  };

  __device__ static int lane() { return int(threadIdx.x) % kWarp; }
  __device__ static int warp() { return int(threadIdx.x) / kWarp; }
  // The slot behind one, of this warp.
  __device__ static int slot_after(int slot_at) {
    return slot_at + kSlotBytes < kSlots * kSlotBytes ? slot_at + kSlotBytes : 0;
  }
  // The part at which this warp begins: another one in each round, so that all warps get long parts and short ones.
  __device__ int member(int turn) const { return (warp() + 3 * turn) & (team_ - 1); }
  __device__ int teams() const { return kProductWarps / team_; }
  __device__ int rounds() const { return (tiles_ + teams() - 1) / teams(); }
  __device__ Tile tile_of(int round) const {
    const int number = round * teams() + warp() / team_;
    return round < rounds() && number < tiles_ ? locate_(number) : Tile{};
  }

  // Turns to the first slot of a round, or of the next in which this warp has one.
  __device__ void aim(int round, int turn) {
    for (; round < rounds() && member(turn) >= stretches_of<Weights>(in_dim_); ++turn) round += step_;
    const Tile tile = tile_of(round);
    ahead_.round = round, ahead_.turn = turn, ahead_.slot = 0;
    ahead_.part = ahead_.stretch = member(turn);
    ahead_.more = tile.out_dim > 0;
    if constexpr (Weights::kTransposed) {
      ahead_.row = static_cast<const char*>(tile.w.address(lane(), tile.o_begin));
      stride_ = tile.w.row_stride * int64_t(sizeof(bf16));
      halves_ = tile.o_begin + 8 < tile.out_dim ? 2 : 1;
    } else {
      // Rows that do not exist are the last one once more: nobody asks for their sums.
      const int row = lane() / 8, last = tile.out_dim - 1 - tile.o_begin, first = min(row, last);
      ahead_.row = static_cast<const char*>(tile.w.address(tile.o_begin + first, in_dim_ - inputs_));
      if constexpr (Weights::kScaled)
        ahead_.scales = tile.w.scale_address(tile.o_begin + min(lane() % 16, last), 0);
      const auto row_bytes = uint32_t(tile.w.row_stride * Weights::kBits / 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) ahead_.further[i] = uint32_t(min(row + 4 * i, last) - first) * row_bytes;
    }
  }

  // One more slot, or an empty group of copies.
  __device__ void fetch() {
    if (ahead_.more) {
      const int begin = ahead_.stretch * Weights::kStretch + ahead_.slot * Product::kSlotInputs,
                at = ahead_.slot_at;
      if constexpr (Weights::kTransposed) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            copy_async_to(copies_ + at + 1024 * i + 16 * half,
                          ahead_.row + (begin + kWarp * i) * stride_ + 16 * half,
                          begin + kWarp * i < inputs_ && half < halves_);
      } else {
        const bool exists = begin < inputs_;
        const char* from = ahead_.row + begin * Weights::kBits / 8;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          copy_async_to(copies_ + at + 4 * i * kSlotRowBytes, from + ahead_.further[i], exists);
        if constexpr (Weights::kScaled) {
          if (lane() < 16) prefetch(ahead_.scales + begin / kMxfp4Block);
        }
      }
      ahead_.slot_at = slot_after(at);
      if (++ahead_.slot == kSlotsOfStretch) {
        ahead_.slot = 0, ahead_.stretch += parts_;
        if (ahead_.stretch >= stretches_of<Weights>(in_dim_)) {
          ahead_.stretch = ahead_.part += team_;
          if (ahead_.part >= parts_ || ahead_.part >= stretches_of<Weights>(in_dim_))
            aim(ahead_.round + step_, ahead_.turn + 1);
        }
      }
    }
    commit_copies();
  }

  const Locate& locate_;
  const int in_dim_, rows_, team_, parts_, kept_parts_, tiles_, first_, step_;
  int inputs_ = 0;           // from the first one of this lane on
  const SharedPlace slots_;  // of this warp
  SharedPlace copies_ = {};  // of this lane in the first of them
  float* const sums_;
  uint4* const kept_;
  Ahead ahead_;
  int64_t stride_ = 0;  // bytes from input to input of transposed weights
  int halves_ = 0;      // of the outputs of a tile, of transposed weights
};

}  // namespace dsa
