// kernels/mxfp4_expert_linear/mxfp4_expert_linear_sm90.cu: wgmma with weights that registers hold; see
// common/fp8_products_sm90.cuh.
//
// Groups of up to 128 rows take tiles of 256 outputs, larger ones tiles of 128 outputs x 256 rows: a weight is read, and
// expanded, once for as many rows as registers have sums for. The order of fp8_tiles.h lets a thread expand whole blocks:
// of each of its two rows of a unit one 16-byte load and one entry of the table make all that it brings to a stretch. It
// does so while the products before run.
#include "kernels/common/cuda_places.cuh"
#include "kernels/common/fp8_products_sm90.cuh"
#include "kernels/common/mxfp4_codes.cuh"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"

namespace dsa {
namespace {

constexpr int kRows = 128;                              // of one instruction
constexpr int kRowsMax = 2 * kRows, kOutputsMax = 256;  // of a tile, not both
constexpr int kOutputsOfGroup = kOutputsMax / kMultiplying;
constexpr int kStages = 4;

// A stage: packed outputs, 64 bytes each; the rows from a multiple of 8 on; entries of the table, of 4 blocks of an output.
constexpr int kPacked = kFp8Stretch / 2, kBlocks = kFp8Stretch / kMxfp4Block;
DSA_HD constexpr int rows_place(bool tall) { return (tall ? kOutputsMax / 2 : kOutputsMax) * kPacked; }
constexpr int kEntriesPlace = rows_place(true) + (kRowsMax + 8) * kFp8Stretch;
constexpr int kStageBytes = kEntriesPlace + kOutputsMax * kBlocks;
static_assert(rows_place(false) + (kRows + 8) * kFp8Stretch <= kEntriesPlace && kStageBytes % 1024 == 0);

struct Shared {
  Leaving<kRowsMax, kOutputsOfGroup> leaving[kMultiplying];
  uint2 table[kShifts];
  uint64_t full[kStages], empty[kStages];
  TileCounts counts;
};
constexpr size_t kSharedBytes = size_t(kStages) * kStageBytes + sizeof(Shared) + 1024;  // aligned by hand
static_assert(kSharedBytes <= 227 * 1024);

struct TileShape {
  int rows, outputs;
  __device__ explicit TileShape(int of_group)
      : rows(of_group > kRows ? kRowsMax : kRows),
        outputs(of_group > kRows ? kOutputsMax / 2 : kOutputsMax) {}
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
using Tile = Tiles<TileShape, Mxfp4ExpertLinearArgs>;

// d (+)= a b^T: 64 outputs, 128 or 64 rows, 32 columns. Lane 4 g + q of warp w has, of outputs 16 w + g and 8 above it, columns
// 4 q .. 4 q + 3, then of both 4 q + 16 .. 4 q + 19.
__device__ void multiply(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
__device__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

__device__ uint2 load_pair(SharedPlace place) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(place));
  return v;
}
__device__ void store_word(SharedPlace place, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(place), "r"(word) : "memory");
}
// Asks for 256 bytes on the way, since the stretches that follow need them.
__device__ void copy_far(SharedPlace place, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(place), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}
// When the copies of this thread so far are there.
__device__ void arrive_after_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)) : "memory");
}

// Four scales of an output from block `b` on; zeros behind the last.
__device__ uint32_t load_scales(const uint8_t* scales, int b, int blocks, bool aligned) {
  if (aligned) return __ldg(reinterpret_cast<const uint32_t*>(scales + b));
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
    if (b + i < blocks) word |= uint32_t(scales[b + i]) << 8 * i;
  return word;
}
__device__ uint32_t entries_of(uint32_t scales, int exponent) {
  uint32_t entries = 0;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
    entries |= uint32_t(shift_entry(int(scales >> 8 * i & 0xff) - exponent)) << 8 * i;
  return entries;
}

// All threads of the last warpgroup.
template <bool kTall>
__device__ void load_tile(const Mxfp4ExpertLinearArgs& a, const Tile& tile, uint8_t* stages, Shared& shared,
                          Stage<kStages>& stage) {
  constexpr int kOutputs = kTall ? kOutputsMax / 2 : kOutputsMax, kOwned = kOutputs / kGroupThreads,
                kOutputsAtOnce = kGroupThreads / kBlocks;
  const Mxfp4ExpertLinearGroup& from = a.groups[tile.group];
  const int thread = threadIdx.x % kGroupThreads, blocks = a.in_dim / kMxfp4Block;
  const int stretches = int(fp8_stretches(a.in_dim)), outputs = a.out_dim - tile.o;
  const int row_bytes = tile.rows * kFp8Stretch;
  const uint8_t* x = a.x + int64_t(tile.r) * kFp8Stretch;

  // A block of every kOutputsAtOnce-th output, and all scales of kOwned outputs.
  const int o_first = thread / kBlocks, block = thread % kBlocks;
  const uint8_t* packed = from.blocks + (int64_t(tile.o + o_first) * blocks + block) * (kMxfp4Block / 2);
  const int64_t step = int64_t(blocks) * (kMxfp4Block / 2) * kOutputsAtOnce;
  const uint8_t* scales[kOwned];
  int exponent[kOwned];
  uint32_t word[kOwned];
  const bool aligned = (uint64_t(from.scales) | uint64_t(blocks)) % 4 == 0;
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int o = min(thread + i * kGroupThreads, outputs - 1);
    scales[i] = from.scales + int64_t(tile.o + o) * blocks;
    exponent[i] = from.exponents[tile.o + o];
    word[i] = load_scales(scales[i], 0, blocks, aligned);
  }
#pragma unroll 1
  for (int k = 0; k < stretches; ++k, stage.next()) {
    uint8_t* to = stages + stage.index * kStageBytes;
    const SharedPlace place = address_of(to);
    uint64_t& full = shared.full[stage.index];
    wait(shared.empty[stage.index], stage.parity ^ 1);
    if (thread == 0) {
      expect_bytes(full, uint32_t(row_bytes));
      copy_in(to + rows_place(kTall) + tile.r % 8 * kFp8Stretch, x, uint32_t(row_bytes), full);
      x += int64_t(a.rows) * kFp8Stretch;
    }
    const bool exists = k * kBlocks + block < blocks;
#pragma unroll
    for (int i = 0; i < kOutputs / kOutputsAtOnce; ++i) {
      const bool there = exists && o_first + i * kOutputsAtOnce < outputs;
      copy_far(place + (i * kGroupThreads + thread) * (kMxfp4Block / 2),
               there ? packed + i * step : from.blocks, there);
    }
    packed += kPacked;
    arrive_after_copies(full);
#pragma unroll
    for (int i = 0; i < kOwned; ++i) {
      store_word(place + kEntriesPlace + (thread + i * kGroupThreads) * kBlocks,
                 entries_of(word[i], exponent[i]));
      if (k + 1 < stretches) word[i] = load_scales(scales[i], (k + 1) * kBlocks, blocks, aligned);
    }
    __syncwarp();
    if (thread % kWarp == 0) arrive(full);
  }
}

// What a thread expands for a unit: a block of two outputs.
struct Packed {
  uint4 low, high;
  uint2 low_entry, high_entry;
};
__device__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The outputs of one warpgroup in a tile: kUnits units of outputs, kHalves halves of rows, of which the last has kLast.
template <int kUnits, int kHalves, int kLast>
__device__ void multiply_tile(const Mxfp4ExpertLinearArgs& a, const Tile& tile, uint8_t* stages,
                              Shared& shared, Stage<kStages>& stage, int group, bool tall) {
  constexpr int kOutputs = kUnits * kUnitOutputs;
  const int thread = threadIdx.x % kGroupThreads, warp = thread / kWarp, lane = thread % kWarp;
  const int stretches = int(fp8_stretches(a.in_dim));
  const uint64_t x_first = descriptor(stages + rows_place(tall) + tile.r % 8 * kFp8Stretch);
  const int output = group * kOutputs + warp * 16 + lane / 4;
  const SharedPlace packed_place = address_of(stages) + output * kPacked + lane % 4 * 16,
                    entries_place = address_of(stages) + kEntriesPlace + output * kBlocks + lane % 4,
                    table = address_of(shared.table);
  const auto load = [&](int index, int unit) {
    const SharedPlace packed = packed_place + index * kStageBytes + unit * kUnitOutputs * kPacked,
                      entries = entries_place + index * kStageBytes + unit * kUnitOutputs * kBlocks;
    return Packed{load_vector(packed), load_vector(packed + 8 * kPacked),
                  load_pair(table + load_byte(entries) * sizeof(uint2)),
                  load_pair(table + load_byte(entries + 8 * kBlocks) * sizeof(uint2))};
  };

  float total[kUnits][kHalves == 2 ? kRows / 2 : 1] = {};  // of the first of two halves
  float last[kUnits][kLast / 2] = {};
  wait(shared.full[stage.index], stage.parity);
  Packed packed = load(stage.index, 0);
  for (int k = 0; k < stretches; ++k) {
    Stage<kStages> ahead = stage;
    ahead.next();
    const uint64_t x = x_first + uint64_t(stage.index * (kStageBytes >> 4));
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      uint32_t w[4][4];
      const auto expand = [&](int i) {
        const uint2 low = expand_codes(word_of(packed.low, i), packed.low_entry),
                    high = expand_codes(word_of(packed.high, i), packed.high_entry);
        w[i][0] = low.x, w[i][1] = high.x, w[i][2] = low.y, w[i][3] = high.y;
      };
      const auto load_next = [&] {
        if (unit + 1 < kUnits) {
          packed = load(stage.index, unit + 1);
        } else if (k + 1 < stretches) {
          wait(shared.full[ahead.index], ahead.parity);
          packed = load(ahead.index, 0);
        }
      };
      if constexpr (kHalves == 2) {
        float sum[kRows / 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          expand(i);
          begin_multiply();
          multiply(sum, w[i], x + i * (32 >> 4), i > 0);
        }
        commit_multiply();
        wait_multiply(sum);
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) total[unit][i] += sum[i];
      }
      float sum[kLast / 2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (kHalves == 1) expand(i);
        if (kHalves == 1 || i == 0) begin_multiply();
        multiply(sum, w[i], x + (kHalves - 1) * (kRows * kFp8Stretch >> 4) + i * (32 >> 4), i > 0);
      }
      commit_multiply();
      load_next();
      wait_multiply(sum);
#pragma unroll
      for (int i = 0; i < kLast / 2; ++i) last[unit][i] += sum[i];
    }
    if (lane == 0) arrive(shared.empty[stage.index]);
    stage = ahead;
  }

  const Mxfp4ExpertLinearGroup& to = a.groups[tile.group];
  const int o_begin = tile.o + group * kOutputs, outputs = min(kOutputs, a.out_dim - o_begin);
  if (outputs <= 0) return;
  auto& leaving = shared.leaving[group];
#pragma unroll
  for (int r = thread; r < kHalves * kRows; r += kGroupThreads)
    leaving.row_scales[r] = r < tile.rows ? a.x_scales[tile.r + r] : 0;
  leaving.powers[thread] = ldexpf(1, (thread < outputs ? to.exponents[o_begin + thread] : 0) - 127);
  sync_group(group);
  float* y = to.y + tile.r * a.y_stride + o_begin;
  if constexpr (kHalves == 2) leave(total, 0, kRows, outputs, y, a.y_stride, leaving, group);
  leave(last, (kHalves - 1) * kRows, tile.rows - (kHalves - 1) * kRows, outputs, y, a.y_stride, leaving,
        group);
}
#endif

// Grid (multiprocessors). Reads each matrix once per tile of the other.
__global__ void __launch_bounds__(kProductThreads, 1)
    mxfp4_expert_linear_kernel(const __grid_constant__ Mxfp4ExpertLinearArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* stages = reinterpret_cast<uint8_t*>((uint64_t(dynamic_shared<uint8_t>()) + 1023) / 1024 * 1024);
  Shared& shared = *reinterpret_cast<Shared*>(stages + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full[stage], kGroupThreads + kGroupThreads / kWarp + 1);
      init_barrier(shared.empty[stage], kMultiplying * kGroupThreads / kWarp);
    }
    show_barriers();
  }
  fill_shift_table(shared.table);
  wait_for_kernel_before();
  Tile::count(a, shared.counts);

  Tile tile{a, shared.counts};
  Stage<kStages> stage;
  if (threadIdx.x >= kMultiplying * kGroupThreads) {
    keep_registers<40>();
    while (tile.next())
      if (tile.of_group > kRows)
        load_tile<true>(a, tile, stages, shared, stage);
      else
        load_tile<false>(a, tile, stages, shared, stage);
  } else {
    take_registers<232>();
    const int group = threadIdx.x / kGroupThreads;
    while (tile.next()) {
      const int half = kRows / 2;
      if (tile.of_group <= half)
        multiply_tile<2, 1, half>(a, tile, stages, shared, stage, group, false);
      else if (tile.of_group <= kRows)
        multiply_tile<2, 1, kRows>(a, tile, stages, shared, stage, group, false);
      else if (tile.rows <= half)
        multiply_tile<1, 1, half>(a, tile, stages, shared, stage, group, true);
      else if (tile.rows <= kRows)
        multiply_tile<1, 1, kRows>(a, tile, stages, shared, stage, group, true);
      else if (tile.rows <= kRows + half)
        multiply_tile<1, 2, half>(a, tile, stages, shared, stage, group, true);
      else
        multiply_tile<1, 2, kRows>(a, tile, stages, shared, stage, group, true);
    }
  }
  start_next_kernel();
#endif
}

}  // namespace

void sm90::mxfp4_expert_linear(const Mxfp4ExpertLinearArgs& a, Queue& queue) {
  if (a.rows == 0) return;
  const int multiprocessors = static_cast<CudaQueue&>(queue).device().multiprocessors;
  for (int g = 0; g < a.num_groups; g += kGroupsMax) {
    Mxfp4ExpertLinearArgs some = a;
    some.groups += g, some.num_groups = a.num_groups - g < kGroupsMax ? a.num_groups - g : kGroupsMax;
    launch(queue, unsigned(multiprocessors), kProductThreads, kSharedBytes, mxfp4_expert_linear_kernel, some);
  }
}

}  // namespace dsa
