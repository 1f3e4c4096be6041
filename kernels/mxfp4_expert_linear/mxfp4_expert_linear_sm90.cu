// kernels/mxfp4_expert_linear/mxfp4_expert_linear_sm90.cu: wgmma with weights that registers hold; see
// common/fp8_products_sm90.cuh.
//
// Groups of up to 128 rows take tiles of 256 outputs, larger ones tiles of 128 outputs x 256 rows: a weight is read, and
// expanded, once for as many rows as registers have sums for. The order of fp8_tiles.h lets a thread expand whole blocks:
// of each of its two outputs of a unit one 16-byte load and one entry of the table make all that it brings to a stretch.
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

// A stage: packed outputs, 64 bytes each; then the rows from a multiple of 8 on.
constexpr int kPacked = kFp8Stretch / 2, kBlocks = kFp8Stretch / kMxfp4Block;
DSA_HD constexpr int rows_place(bool tall) { return (tall ? kOutputsMax / 2 : kOutputsMax) * kPacked; }
constexpr int kStageBytes = rows_place(true) + (kRowsMax + 8) * kFp8Stretch;
static_assert(rows_place(false) + (kRows + 8) * kFp8Stretch <= kStageBytes && kStageBytes % 1024 == 0);
// What four stretches need of the table. A stage is free once the one kStages before it is, so as many serve.
constexpr int kQuad = 4, kQuads = kStages;

struct Shared {
  uint32_t entries[kQuads][kOutputsMax][kQuad];  // a byte for each block
  Leaving<kRowsMax, kOutputsOfGroup> leaving[kMultiplying];
  uint2 table[kShifts];
  uint64_t full[kStages], empty[kStages];
  TileCounts counts;
};
constexpr size_t kSharedBytes = size_t(kStages) * kStageBytes + sizeof(Shared);
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
// Asks for 256 bytes on the way, since the stretches that follow need them.
__device__ void copy_far(SharedPlace place, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(place), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ void copy_far(SharedPlace place, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(place), "l"(global) : "memory");
}
// When the copies of this thread so far are there.
__device__ void arrive_after_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)) : "memory");
}

// The same for all lanes, in a way that shows it to the compiler.
__device__ const uint8_t* of_warp(const uint8_t* p) {
  const uint64_t bits = uint64_t(p);
  return reinterpret_cast<const uint8_t*>(uint64_t(__shfl_sync(kAllLanes, uint32_t(bits >> 32), 0)) << 32 |
                                          __shfl_sync(kAllLanes, uint32_t(bits), 0));
}

// The scales of an output that a thread of the last warpgroup prepares.
struct Scales {
  const uint8_t* at;  // the four stretches after those of `next`
  uint4 next;
  uint32_t bias;  // what makes scales places in the table, in both halves

  // Of `count` blocks from `at` on, zeros behind them.
  __device__ void load(int count) {
    const uint64_t alignment = uint64_t(at) | uint64_t(count);
    if (count <= 0) return;
    if (alignment % 16 == 0) {
      next = __ldg(reinterpret_cast<const uint4*>(at));
    } else {
      uint32_t words[kQuad] = {};
      if (alignment % 4 == 0) {
#pragma unroll
        for (int i = 0; i < kQuad; ++i)
          if (i * kBlocks < count) words[i] = __ldg(reinterpret_cast<const uint32_t*>(at) + i);
      } else {
#pragma unroll
        for (int i = 0; i < kQuad * kBlocks; ++i)
          if (i < count) words[i / kBlocks] |= uint32_t(__ldg(at + i)) << 8 * (i % kBlocks);
      }
      next = {words[0], words[1], words[2], words[3]};
    }
    at += kQuad * kBlocks;
  }
  __device__ uint32_t entries(uint32_t scales) const {
    constexpr uint32_t kMost = (kShifts - 1) * 0x10001u;
    const uint32_t low = __viaddmin_s16x2_relu(__byte_perm(scales, 0, 0x4140), bias, kMost),
                   high = __viaddmin_s16x2_relu(__byte_perm(scales, 0, 0x4342), bias, kMost);
    return __byte_perm(low, high, 0x6420);
  }
  __device__ uint4 entries() const {
    return {entries(next.x), entries(next.y), entries(next.z), entries(next.w)};
  }
};

// All threads of the last warpgroup. `quad` counts the entries that were made.
template <bool kTall>
__device__ void load_tile(const Mxfp4ExpertLinearArgs& a, const Tile& tile, uint8_t* stages, Shared& shared,
                          Stage<kStages>& stage, unsigned& quad) {
  constexpr int kOutputs = kTall ? kOutputsMax / 2 : kOutputsMax, kOwned = kOutputs / kGroupThreads,
                kOutputsAtOnce = kGroupThreads / kBlocks;
  const Mxfp4ExpertLinearGroup& from = a.groups[tile.group];
  const int thread = threadIdx.x % kGroupThreads, blocks = a.in_dim / kMxfp4Block;
  const int stretches = int(fp8_stretches(a.in_dim)), outputs = a.out_dim - tile.o;
  const int row_bytes = tile.rows * kFp8Stretch;
  const uint8_t* x = a.x + int64_t(tile.r) * kFp8Stretch;

  // A block of every kOutputsAtOnce-th output, and all scales of kOwned outputs.
  const int o_first = thread / kBlocks, block = thread % kBlocks;
  const uint8_t* packed = of_warp(from.blocks + int64_t(tile.o) * blocks * (kMxfp4Block / 2));
  const uint32_t first = uint32_t(o_first * blocks + block) * (kMxfp4Block / 2),
                 step = uint32_t(blocks) * (kMxfp4Block / 2) * kOutputsAtOnce;
  Scales scales[kOwned];
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int o = tile.o + min(thread + i * kGroupThreads, outputs - 1);
    scales[i].at = from.scales + int64_t(o) * blocks;
    scales[i].bias = uint32_t(-kShiftMin - from.exponents[o] & 0xffff) * 0x10001u;
    scales[i].load(blocks);
  }
#pragma unroll 1
  for (int k = 0; k < stretches; ++k, stage.next(), packed += kPacked) {
    uint8_t* to = stages + stage.index * kStageBytes;
    const SharedPlace place = address_of(to) + thread * (kMxfp4Block / 2);
    uint64_t& full = shared.full[stage.index];
    wait(shared.empty[stage.index], stage.parity ^ 1);
    if (thread == 0) {
      expect_bytes(full, uint32_t(row_bytes));
      copy_in(to + rows_place(kTall) + tile.r % 8 * kFp8Stretch, x, uint32_t(row_bytes), full);
      x += int64_t(a.rows) * kFp8Stretch;
    }
    if (outputs >= kOutputs && (k + 1) * kBlocks <= blocks) {
#pragma unroll
      for (int i = 0; i < kOutputs / kOutputsAtOnce; ++i)
        copy_far(place + i * kGroupThreads * (kMxfp4Block / 2), packed + (first + i * step));
    } else {
      for (int i = 0; i < kOutputs / kOutputsAtOnce; ++i) {
        const bool there = k * kBlocks + block < blocks && o_first + i * kOutputsAtOnce < outputs;
        copy_far(place + i * kGroupThreads * (kMxfp4Block / 2), there ? packed + (first + i * step) : packed,
                 there);
      }
    }
    if (k % kQuad == 0) {
      uint32_t(*entries)[kQuad] = shared.entries[quad++ % kQuads];
#pragma unroll
      for (int i = 0; i < kOwned; ++i) {
        *reinterpret_cast<uint4*>(entries[thread + i * kGroupThreads]) = scales[i].entries();
        scales[i].load(blocks - (k + kQuad) * kBlocks);
      }
    }
    arrive_after_copies(full);
    arrive(full);
  }
}

// What a thread brings to a unit of a stretch: a block of two outputs, packed and expanded.
struct Packed {
  uint4 low, high;
  uint2 low_entry, high_entry;
};
struct Expanded {
  uint32_t words[4][4];
};
__device__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ void expand(const Packed& from, Expanded& to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint2 low = expand_codes(word_of(from.low, i), from.low_entry),
                high = expand_codes(word_of(from.high, i), from.high_entry);
    to.words[i][0] = low.x, to.words[i][1] = high.x, to.words[i][2] = low.y, to.words[i][3] = high.y;
  }
}

// Expanded no sooner than here: before, the matrix units may still read registers that held what was expanded before.
__device__ void hold(Packed& p) {
  asm volatile(""
               : "+r"(p.low.x), "+r"(p.low.y), "+r"(p.low.z), "+r"(p.low.w), "+r"(p.high.x), "+r"(p.high.y),
                 "+r"(p.high.z), "+r"(p.high.w)
               :
               : "memory");
}

// Four products on their way, and what they gave added to the sums.
template <int kSums>
__device__ void give(float (&sum)[kSums], const Expanded& w, uint64_t x) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "=f"(sum[i]));  // the first product sets it
  begin_multiply();
#pragma unroll
  for (int i = 0; i < 4; ++i) multiply(sum, w.words[i], x + i * (32 >> 4), i > 0);
  commit_multiply();
}
template <int kSums>
__device__ void take(float (&sum)[kSums], float (&total)[kSums]) {
  wait_multiply();
  take_product(sum);
#pragma unroll
  for (int i = 0; i < kSums; ++i) total[i] += sum[i];
}

// The outputs of one warpgroup in a tile: kUnits units of outputs, kHalves halves of rows, of which the last has kLast.
template <int kUnits, int kHalves, int kLast>
__device__ void multiply_tile(const Mxfp4ExpertLinearArgs& a, const Tile& tile, uint8_t* stages,
                              Shared& shared, Stage<kStages>& stage, unsigned& quad, int group) {
  constexpr int kOutputs = kUnits * kUnitOutputs;
  const int thread = threadIdx.x % kGroupThreads, warp = thread / kWarp, lane = thread % kWarp;
  const int stretches = int(fp8_stretches(a.in_dim));
  const uint64_t x_first = descriptor(stages + rows_place(kUnits == 1) + tile.r % 8 * kFp8Stretch);
  const int output = group * kOutputs + warp * 16 + lane / 4;
  const int block = output * kBlocks + lane % 4, entry = output * kQuad * kBlocks + lane % 4;
  const auto load = [&](int index, int k, int unit) {
    const SharedPlace packed = address_of(stages) + index * kStageBytes + block * (kMxfp4Block / 2) +
                               unit * kUnitOutputs * kPacked,
                      entries = address_of(shared.entries[(quad + unsigned(k) / kQuad) % kQuads]) +
                                k % kQuad * kBlocks + entry + unit * kUnitOutputs * kQuad * kBlocks,
                      table = address_of(shared.table);
    return Packed{load_vector(packed), load_vector(packed + 8 * kPacked),
                  load_pair(table + load_byte(entries) * sizeof(uint2)),
                  load_pair(table + load_byte(entries + 8 * kQuad * kBlocks) * sizeof(uint2))};
  };

  float total[kUnits][kHalves == 2 ? kRows / 2 : 1] = {};  // of the first of two halves
  float last[kUnits][kLast / 2] = {};
  wait(shared.full[stage.index], stage.parity);
  Packed packed = load(stage.index, 0, 0);
  for (int k = 0; k < stretches; ++k) {
    Stage<kStages> ahead = stage;
    ahead.next();
    const uint64_t x = x_first + uint64_t(stage.index * (kStageBytes >> 4));
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      Expanded w;
      expand(packed, w);
      if constexpr (kHalves == 2) {
        float sum[kRows / 2];
        give(sum, w, x);
        take(sum, total[unit]);
      }
      float sum[kLast / 2];
      give(sum, w, x + (kHalves - 1) * (kRows * kFp8Stretch >> 4));
      if (unit + 1 < kUnits) {
        packed = load(stage.index, k, unit + 1);
      } else if (k + 1 < stretches) {
        wait(shared.full[ahead.index], ahead.parity);
        packed = load(ahead.index, k + 1, 0);
      }
      take(sum, last[unit]);
      hold(packed);
    }
    arrive(shared.empty[stage.index]);
    stage = ahead;
  }
  quad += unsigned(stretches + kQuad - 1) / kQuad;

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
  uint8_t* stages = shared_operands();
  Shared& shared = *reinterpret_cast<Shared*>(stages + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full[stage], 2 * kGroupThreads + 1);  // with and after its copies
      init_barrier(shared.empty[stage], kMultiplying * kGroupThreads);
    }
    show_barriers();
  }
  fill_shift_table(shared.table);
  wait_for_kernel_before();
  Tile::count(a, shared.counts);

  Tile tile{a, shared.counts};
  Stage<kStages> stage;
  unsigned quad = 0;
  if (threadIdx.x >= kMultiplying * kGroupThreads) {
    give_registers<40>();
    while (tile.next())
      if (tile.of_group > kRows)
        load_tile<true>(a, tile, stages, shared, stage, quad);
      else
        load_tile<false>(a, tile, stages, shared, stage, quad);
  } else {
    take_registers<232>();
    const int group = __shfl_sync(kAllLanes, int(threadIdx.x) / kGroupThreads, 0);
    while (tile.next()) {
      const int half = kRows / 2;
      if (tile.of_group <= half)
        multiply_tile<2, 1, half>(a, tile, stages, shared, stage, quad, group);
      else if (tile.of_group <= kRows)
        multiply_tile<2, 1, kRows>(a, tile, stages, shared, stage, quad, group);
      else if (tile.rows <= half)
        multiply_tile<1, 1, half>(a, tile, stages, shared, stage, quad, group);
      else if (tile.rows <= kRows)
        multiply_tile<1, 1, kRows>(a, tile, stages, shared, stage, quad, group);
      else if (tile.rows <= kRows + half)
        multiply_tile<1, 2, half>(a, tile, stages, shared, stage, quad, group);
      else
        multiply_tile<1, 2, kRows>(a, tile, stages, shared, stage, quad, group);
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
