// kernels/linears/wide_linears.cu: bf16 weights times up to 8 rows by one block of 16 warps a multiprocessor, which cuts the rows
// once. Tiles, slots and the order of sums are those of common/few_rows.cuh.
//
// Rows that are too long for shared memory come in spans, and the sums of all tiles of a group wait there for the next one: each
// weight is read once.
#include "kernels/activation/activation.cuh"
#include "kernels/linears/lists.cuh"
#include "kernels/linears/wide_linears.h"

namespace dsa {
namespace {

constexpr int kWarps = 16, kThreads = kWarps * kWarp, kTeams = kWarps / kProductWarps, kSlots = 3;
constexpr int kSpanStep = kProductWarps * kStretch;  // every warp has a stretch of it
constexpr int kGroupMax = 8;
using Product = PieceProduct<Bf16Weights, 3>;
using Tile = FewRowsTile<Bf16Weights>;

// How a block goes through a list. A round is a tile for each team.
struct Schedule {
  int span;   // inputs in shared memory: all, or a multiple of kSpanStep
  int group;  // rounds for which a span is there
};
struct Schedules {
  Schedule of[LinearsArgs::kMax];
};

// Shared memory, in order: slots, two sets of sums, sums that wait, rows. Beside it lie a few numbers of the norm.
constexpr size_t kAllSlotsBytes = size_t(kWarps) * kSlots * kSlotBytes, kBesideBytes = 512;
__host__ __device__ size_t sums_bytes(int rows) { return size_t(2) * kWarps * rows * 16 * sizeof(float); }
__host__ __device__ size_t waiting_bytes(const Schedule& schedule, int in_dim) {
  return schedule.span < in_dim ? size_t(schedule.group) * kThreads * sizeof(float4) : 0;
}
size_t shared_bytes(const Schedule& schedule, int rows, int in_dim) {
  return kAllSlotsBytes + sums_bytes(rows) + waiting_bytes(schedule, in_dim) +
         rows * Product::kept_bytes(schedule.span);
}

template <class Locate>
class WideRows {
 public:
  __device__ WideRows(uint4* shared, const Schedule& schedule, int in_dim, int rows, int tiles, int first,
                      int step, const Locate& locate)
      : locate_(locate),
        in_dim_(in_dim),
        rows_(rows),
        tiles_(tiles),
        first_(first),
        step_(step),
        span_((schedule.span + kStretch - 1) / kStretch),
        group_(schedule.group),
        inputs_(in_dim - lane() % 8 * 8),
        slots_(place_of(shared + warp() * kSlots * kSlotBytes / sizeof(uint4))),
        copies_(slots_ + place_in_slot<Bf16Weights>(lane() / 8, lane() % 8)),
        sums_(reinterpret_cast<float*>(shared + kAllSlotsBytes / sizeof(uint4))),
        waiting_(reinterpret_cast<float4*>(shared + (kAllSlotsBytes + sums_bytes(rows)) / sizeof(uint4))),
        kept_(shared +
              (kAllSlotsBytes + sums_bytes(rows) + waiting_bytes(schedule, in_dim)) / sizeof(uint4)) {}

  // Sends the first weights on their way.
  __device__ void start() {
    ahead_.group = first_, ahead_.begin = 0, ahead_.turn = -1, ahead_.slot_at = 0;
    aim();
    for (int i = 0; i < kSlots - 1; ++i) fetch();
  }

  // keep(begin, end, kept) puts inputs [begin, end) of all rows where `kept` says. early and finish are as in FewRows.
  template <class Keep, class Early, class Finish>
  __device__ void run(const Keep& keep, const Early& early, const Finish& finish) {
    Product product(min(span_ * kStretch, in_dim_), rows_);
    const int stretches = this->stretches(), outputs = rows_ * 16;
    const int team = int(threadIdx.x) / outputs, output = int(threadIdx.x) % outputs;  // to add
    int slot_at = 0;
    bool odd = false;
    for (int group = first_; group < rounds(); group += group_ * step_)
      for (int begin = 0; begin < stretches; begin += span_) {
        const int end = min(begin + span_, stretches);
        __syncthreads();  // the span before has been multiplied
        keep(begin * kStretch, end * kStretch, kept_);
        __syncthreads();
        for (int turn = 0; turn < group_ && group + turn * step_ < rounds(); ++turn) {
          const int round = group + turn * step_, number = round * kTeams + team;
          const Tile tile = tile_of(round);
          float* sums = sums_ + (odd ? kWarps * outputs : 0);  // [team, part, row, output]
          float4& waiting = waiting_[turn * kThreads + int(threadIdx.x)];
          const auto output_of = [&](const auto& use) {
            if (end < stretches || team >= kTeams || number >= tiles_) return;
            const Tile to = locate_(number);
            if (const int o = to.o_begin + output % 16; o < to.out_dim) use(to, output / 16, o);
          };
          float first = 0;
          output_of([&](const Tile&, int row, int o) { first = early(number, row, o); });

          if (tile.out_dim > 0) {
            product.aim(tile);
            product.read_ahead(0);
            product.clear(place_of(kept_));
            product.begin(tile);
            if (begin > 0) product.resume(waiting);
            for (int stretch = begin + member(turn); stretch < end; stretch += kProductWarps)
              product.multiply(
                  tile, stretch - begin,
                  [&] {
                    wait_for_copies<kSlots - 2>();
                    __syncwarp();  // lanes copy for each other
                    fetch();
                    const SharedPlace slot = slots_ + slot_at;
                    slot_at = slot_after(slot_at);
                    return slot;
                  },
                  [] {});
            if (end < stretches)
              waiting = product.sums();
            else
              product.put(sums + (warp() / kProductWarps * kProductWarps + member(turn)) * outputs, false);
          }
          if (end < stretches) continue;

          odd = !odd;
          __syncthreads();  // the sums of the round before have been added by all who come here
          output_of([&](const Tile&, int row, int o) {
            float all = 0;
#pragma unroll
            for (int part = 0; part < kProductWarps; ++part)
              all += sums[(team * kProductWarps + part) * outputs + output];
            finish(number, row, o, all, first);
          });
        }
      }
    wait_for_copies<0>();
  }

 private:
  static constexpr int kSlotsOfStretch = kStretch / Product::kSlotInputs;
  // The slot that is fetched next.
  struct Ahead {
    int group, begin, turn;  // first round and first stretch of the span; round of the group
    int stretch, slot, slot_at;
    bool more;
    const char* row;      // of this lane, from its first input on
    uint32_t further[4];  // bytes from there to the other rows of this lane
  };

  __device__ static int lane() { return int(threadIdx.x) % kWarp; }
  __device__ static int warp() { return int(threadIdx.x) / kWarp; }
  __device__ static int slot_after(int slot_at) {
    return slot_at + kSlotBytes < kSlots * kSlotBytes ? slot_at + kSlotBytes : 0;
  }
  // The part of this warp: another one in each round, so that all warps get long parts and short ones.
  __device__ static int member(int turn) { return (warp() + 3 * turn) & (kProductWarps - 1); }
  __device__ int stretches() const { return stretches_of<Bf16Weights>(in_dim_); }
  __device__ int rounds() const { return (tiles_ + kTeams - 1) / kTeams; }
  __device__ Tile tile_of(int round) const {
    const int number = round * kTeams + warp() / kProductWarps;
    return number < tiles_ ? locate_(number) : Tile{};
  }

  // Turns to the next round in which this warp has a stretch.
  __device__ void aim() {
    for (;;) {
      ++ahead_.turn;
      if (ahead_.turn == group_ || ahead_.group + ahead_.turn * step_ >= rounds()) {
        ahead_.turn = 0, ahead_.begin += span_;
        if (ahead_.begin >= stretches()) ahead_.begin = 0, ahead_.group += group_ * step_;
      }
      ahead_.more = ahead_.group < rounds();
      if (!ahead_.more) return;
      ahead_.stretch = ahead_.begin + member(ahead_.turn), ahead_.slot = 0;
      const Tile tile = tile_of(ahead_.group + ahead_.turn * step_);
      if (tile.out_dim == 0 || ahead_.stretch >= min(ahead_.begin + span_, stretches())) continue;
      // Rows that do not exist are the last one once more: nobody asks for their sums.
      const int row = lane() / 8, last = tile.out_dim - 1 - tile.o_begin, at = min(row, last);
      ahead_.row = static_cast<const char*>(tile.w.address(tile.o_begin + at, in_dim_ - inputs_));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ahead_.further[i] = uint32_t(min(row + 4 * i, last) - at) * uint32_t(in_dim_) * sizeof(bf16);
      return;
    }
  }

  // One more slot, or an empty group of copies.
  __device__ void fetch() {
    if (ahead_.more) {
      const int begin = ahead_.stretch * kStretch + ahead_.slot * Product::kSlotInputs, at = ahead_.slot_at;
      const char* from = ahead_.row + begin * sizeof(bf16);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        copy_async_to(copies_ + at + 4 * i * kSlotRowBytes, from + ahead_.further[i], begin < inputs_);
      ahead_.slot_at = slot_after(at);
      if (++ahead_.slot == kSlotsOfStretch) {
        ahead_.slot = 0, ahead_.stretch += kProductWarps;
        if (ahead_.stretch >= min(ahead_.begin + span_, stretches())) aim();
      }
    }
    commit_copies();
  }

  const Locate& locate_;
  const int in_dim_, rows_, tiles_, first_, step_;
  const int span_, group_;    // stretches; rounds
  const int inputs_;          // from the first one of this lane on
  const SharedPlace slots_;   // of this warp
  const SharedPlace copies_;  // of this lane in the first of them
  float* const sums_;
  float4* const waiting_;  // [round of the group, thread]
  uint4* const kept_;
  Ahead ahead_;
};

// What rms_norm multiplies each row by, with the sums in its order: a row belongs to as many threads as there.
__device__ void norm_scales(const LinearsArgs& a, float (&scales)[kLinearsRowsMax]) {
  constexpr int kThreadsOfRow = kProductWarps * kWarp, kRows = kLinearsRowsMax / kTeams, kTogether = 5;
  __shared__ float sums[kLinearsRowsMax][kProductWarps];
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp, dim = a.products[0].in_dim;
  const auto row_of = [&](int i) { return i * kTeams + warp / kProductWarps; };
  float squares[kRows] = {};
  for (int begin = int(threadIdx.x) % kThreadsOfRow; begin < dim; begin += kTogether * kThreadsOfRow) {
    float value[kRows][kTogether];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int d = begin + j * kThreadsOfRow;
        value[i][j] =
            row_of(i) < a.rows && d < dim ? a.products[0].x[row_of(i) * a.products[0].x_stride + d] : 0;
      }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kTogether; ++j) squares[i] += value[i][j] * value[i][j];
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float sum = warp_sum(squares[i]);
    if (lane == 0) sums[row_of(i)][warp % kProductWarps] = sum;
  }
  __syncthreads();
  if (warp < a.rows) {
    const float sum = warp_sum(lane < kProductWarps ? sums[warp][lane] : 0.f);
    if (lane == 0) scales[warp] = rsqrtf(sum / dim + a.eps);
  }
  __syncthreads();
}

// Reads the weights of all products once. h is written by a block for each row.
__global__ void __launch_bounds__(kThreads, 1)
    wide_linears_kernel(const __grid_constant__ LinearsArgs a, const __grid_constant__ Blocks blocks,
                        const __grid_constant__ Schedules schedules) {
  constexpr int kTogether = 3;  // octets whose values a thread waits for
  __shared__ float scales[kLinearsRowsMax];
  start_next_kernel();
  int list = 0;
  while (int(blockIdx.x) >= blocks.begin[list + 1]) ++list;
  const LinearsArgs::Product& p = a.products[list];
  const auto locate = [&](int tile) {
    const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
    return Tile{{static_cast<const bf16*>(of.weight), of.in_dim}, 16 * tile, of.out_dim, 0};
  };
  WideRows<decltype(locate)> product(dynamic_shared<uint4>(), schedules.of[list], p.in_dim, a.rows,
                                     tiles_of_list(a, list), int(blockIdx.x) - blocks.begin[list],
                                     blocks.begin[list + 1] - blocks.begin[list], locate);
  product.start();
  wait_for_kernel_before();
  if (a.norm) norm_scales(a, scales);

  const auto keep = [&](int begin, int end, uint4* kept) {
    const int octets = (end - begin) / 8, all = a.rows * octets;
    const auto stride = int(Product::kept_bytes(schedules.of[list].span) / sizeof(uint4));
    for (int first = threadIdx.x; first < all; first += kTogether * kThreads) {
      float value[kTogether][8] = {}, beside[kTogether][8] = {};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = first + i * kThreads, r = at / octets, k = begin + at % octets * 8;
        if (at >= all || k >= p.in_dim) continue;
        read_octet(p.x + r * p.x_stride, k, value[i]);
        if (a.norm) read_octet(a.norm, k, beside[i]);
        if (a.up) read_octet(a.up + r * p.x_stride, k, beside[i]);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = first + i * kThreads, r = at / octets, k = begin + at % octets * 8;
        if (at >= all) continue;
        if (a.norm) {
#pragma unroll
          for (int j = 0; j < 8; ++j) value[i][j] = value[i][j] * scales[r] * beside[i][j];
          if (r % int(gridDim.x) == int(blockIdx.x) && k < p.in_dim) {
#pragma unroll
            for (int j = 0; j < 8; ++j) a.h[int64_t(r) * p.in_dim + k + j] = value[i][j];
          }
        } else if (a.up && k < p.in_dim) {
#pragma unroll
          for (int j = 0; j < 8; ++j) value[i][j] = activate(a.form, value[i][j], beside[i][j]);
        }
        Product::keep_octet(kept + r * stride, p.in_dim, at % octets, value[i]);
      }
    }
  };
  product.run(
      keep,
      [&](int tile, int r, int o) {
        const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
        return of.addend ? of.addend[r * of.addend_stride + o] : 0.f;
      },
      [&](int tile, int r, int o, float sum, float addend) {
        const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
        of.y[r * of.y_stride + o] = of.addend ? addend + sum : sum;
      });
}

// The schedule by which rows are kept the fewest times. Group 0: there is none.
Schedule schedule_of(int rows, int in_dim, int64_t rounds, size_t shared_bytes_max) {
  const Schedule whole{in_dim, int(rounds)};
  if (shared_bytes(whole, rows, in_dim) <= shared_bytes_max) return whole;
  Schedule best{0, 0};
  int64_t fewest = INT64_MAX;
  for (int group = int(std::min<int64_t>(rounds, kGroupMax)); group > 0; --group) {
    Schedule schedule{0, group};
    while (shared_bytes({schedule.span + kSpanStep, group}, rows, in_dim) <= shared_bytes_max)
      schedule.span += kSpanStep;
    if (schedule.span == 0) continue;
    const int64_t times = ceil_div(rounds, group) * ceil_div(in_dim, schedule.span);
    if (times < fewest) best = schedule, fewest = times;
  }
  return best;
}

}  // namespace

bool wide_linears(const LinearsArgs& a, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  if (a.rows > kLinearsRowsMax || device.multiprocessors < a.num_products) return false;
  bool two = true;  // narrow blocks fit
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    const Bf16Weights w{static_cast<const bf16*>(p.weight), p.in_dim};
    if (p.weight_type != DType::bf16 || p.in_dim % 8 != 0 || !w.aligned(p.in_dim) ||
        parts_of<Bf16Weights>(p.in_dim) < kProductWarps)
      return false;
    two &= few_rows_blocks<Product>(few_rows_bytes<Product>(a.rows, p.in_dim), device.shared_bytes_max) == 2;
  }
  if (two) return false;

  const int lists = num_lists(a);
  int64_t rounds[LinearsArgs::kMax] = {};
  for (int i = 0; i < lists; ++i) rounds[i] = ceil_div(tiles_of_list(a, i), kTeams);
  const Blocks blocks = share_out(a, rounds, device.multiprocessors);
  Schedules schedules = {};
  size_t shared = 0;
  for (int i = 0; i < lists; ++i) {
    Schedule& schedule = schedules.of[i];
    schedule =
        schedule_of(a.rows, a.products[i].in_dim, ceil_div(rounds[i], blocks.begin[i + 1] - blocks.begin[i]),
                    device.shared_bytes_max - kBesideBytes);
    if (schedule.group == 0) return false;
    shared = std::max(shared, shared_bytes(schedule, a.rows, a.products[i].in_dim));
  }
  launch(queue, unsigned(blocks.begin[lists]), kThreads, shared, wide_linears_kernel, a, blocks, schedules);
  return true;
}

}  // namespace dsa
