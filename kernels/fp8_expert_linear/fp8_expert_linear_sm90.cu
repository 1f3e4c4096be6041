// kernels/fp8_expert_linear/fp8_expert_linear_sm90.cu: wgmma on tiles of 256 outputs x 128 rows, fed by bulk copies.
//
// A block stays on its multiprocessor and takes tiles in turn. One thread copies stretches of 128 columns of both matrices
// into shared memory, kStages ahead, one piece of memory each; two warpgroups of 128 outputs multiply them. Outputs are the
// long side of the matrix units, so that few rows waste little. The units keep few bits of a sum: each stretch is summed
// by itself and added in f32.
#include "kernels/common/cuda.cuh"
#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

namespace dsa {
namespace {

constexpr int kGroups = 2, kGroupThreads = 128;  // warpgroups that multiply
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kRows = 128, kOutputs = 256, kOutputsOfGroup = kOutputs / kGroups, kStages = 4;
constexpr int kUnitOutputs = 64, kUnits = kOutputsOfGroup / kUnitOutputs;  // of one instruction

// A stage: the outputs, then the rows from a multiple of 8 on.
constexpr int kOutputsBytes = kOutputs * kFp8Stretch, kRowsBytes = (kRows + 8) * kFp8Stretch,
              kStageBytes = kOutputsBytes + kRowsBytes;
// Sums leave through shared memory; the padding keeps writes apart.
constexpr int kLeaving = 16, kLeavingStride = kOutputsOfGroup + 4;
constexpr int kGroupsMax = 512;  // of experts in a launch

struct Shared {
  float leaving[kGroups][kLeaving * kLeavingStride];
  float row_scales[kGroups][kRows], powers[kGroups][kOutputsOfGroup];  // of the tile that leaves
  uint64_t full[kStages], empty[kStages];
  int first[kGroupsMax + 1];  // tile of each group of rows, and how many there are
  int begin[kGroupsMax], end[kGroupsMax];
};
constexpr size_t kSharedBytes = size_t(kStages) * kStageBytes + sizeof(Shared) + 1024;  // aligned by hand

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ uint32_t address_of(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }

__device__ void init_barrier(uint64_t& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&barrier)), "r"(count) : "memory");
}
__device__ void expect_bytes(uint64_t& barrier, uint32_t bytes) {  // arrives as well
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(&barrier)) : "memory");
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
__device__ void copy_in(void* shared, const void* global, uint32_t bytes, uint64_t& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          address_of(shared)),
      "l"(global), "r"(bytes), "r"(address_of(&barrier))
      : "memory");
}
__device__ void sync_group(int group) {
  if (group == 0)
    asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory");
  else
    asm volatile("bar.sync 2, %0;" ::"n"(kGroupThreads) : "memory");
}

// A matrix in shared memory: rows of 128 bytes, swizzled over 128 bytes, eight rows every 1024 bytes.
__device__ uint64_t descriptor(const void* shared) {
  return (uint64_t(address_of(shared)) >> 4 & 0x3fff) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
// d (+)= a b^T: 64 outputs, 128 or 64 rows, 32 columns.
__device__ void multiply(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1;\n"
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
      : "l"(a), "l"(b), "r"(int(add)));
}
__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(int(add)));
}
__device__ void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int kCount>
__device__ void end_multiply(float (&d)[kCount]) {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");  // not read before
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

struct Stage {
  int index = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++index == kStages) index = 0, parity ^= 1;
  }
};

// The tiles of all groups, in order: the row tiles of an output tile follow each other and share its weights.
// Blocks take them in turn, in each round one place further on, so that none has only the small ones.
struct Tiles {
  const Fp8ExpertLinearArgs& a;
  const Shared& shared;
  int group = 0, round = 0;
  int r = 0, rows = 0, o = 0;  // the tile: first row, how many, first output

  // All threads of the block.
  __device__ static void count(const Fp8ExpertLinearArgs& a, Shared& shared) {
    const int output_tiles = (a.out_dim + kOutputs - 1) / kOutputs;
    for (int g = threadIdx.x; g < a.num_groups; g += kThreads) {
      const int32_t* range = a.groups[g].range;
      shared.begin[g] = range[0], shared.end[g] = range[1];
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
      int before = 0;
      for (int begin = 0; begin < a.num_groups; begin += kWarp) {
        const int g = begin + int(threadIdx.x);
        const int tiles =
            g < a.num_groups ? (shared.end[g] - shared.begin[g] + kRows - 1) / kRows * output_tiles : 0;
        int sum = tiles;
        for (int lanes = 1; lanes < kWarp; lanes *= 2) {
          const int below = __shfl_up_sync(kAllLanes, sum, lanes);
          if (int(threadIdx.x) >= lanes) sum += below;
        }
        if (g < a.num_groups) shared.first[g] = before + sum - tiles;
        before += __shfl_sync(kAllLanes, sum, kWarp - 1);
      }
      if (threadIdx.x == 0) shared.first[a.num_groups] = before;
    }
    __syncthreads();
  }
  // Moves to the next tile of the block; false if there is none.
  __device__ bool next() {
    const int index = round * int(gridDim.x) + int((blockIdx.x + unsigned(round)) % gridDim.x);
    ++round;
    if (index >= shared.first[a.num_groups]) return false;
    while (index >= shared.first[group + 1]) ++group;
    const int of_group = index - shared.first[group],
              row_tiles = (shared.end[group] - shared.begin[group] + kRows - 1) / kRows;
    r = shared.begin[group] + of_group % row_tiles * kRows;
    rows = min(kRows, shared.end[group] - r);
    o = of_group / row_tiles * kOutputs;
    return true;
  }
};

__device__ void load_tile(const Fp8ExpertLinearArgs& a, const Tiles& tile, uint8_t* stages, Shared& shared,
                          Stage& stage) {
  const int stretches = int(fp8_stretches(a.in_dim));
  const uint32_t row_bytes = uint32_t(tile.rows) * kFp8Stretch,
                 output_bytes = uint32_t(min(kOutputs, a.out_dim - tile.o)) * kFp8Stretch;
  const uint8_t* x = a.x + int64_t(tile.r) * kFp8Stretch;
  const uint8_t* w = a.groups[tile.group].weight + int64_t(tile.o) * kFp8Stretch;
#pragma unroll 1
  for (int k = 0; k < stretches; ++k, stage.next()) {
    uint8_t* to = stages + stage.index * kStageBytes;
    wait(shared.empty[stage.index], stage.parity ^ 1);
    expect_bytes(shared.full[stage.index], row_bytes + output_bytes);
    copy_in(to, w, output_bytes, shared.full[stage.index]);
    copy_in(to + kOutputsBytes + tile.r % 8 * kFp8Stretch, x, row_bytes, shared.full[stage.index]);
    w += int64_t(a.out_dim) * kFp8Stretch, x += int64_t(a.rows) * kFp8Stretch;
  }
}

// The outputs of one warpgroup in a tile, of at most kTileRows rows.
template <int kTileRows>
__device__ void multiply_tile(const Fp8ExpertLinearArgs& a, const Tiles& tile, const uint8_t* stages,
                              Shared& shared, Stage& stage, int group) {
  const int thread = threadIdx.x % kGroupThreads, warp = thread / kWarp, lane = threadIdx.x % kWarp;
  const int o_begin = tile.o + group * kOutputsOfGroup, outputs = min(kOutputsOfGroup, a.out_dim - o_begin);
  const Fp8ExpertLinearGroup to = a.groups[tile.group];
  const float row_scale = thread < tile.rows ? a.x_scales[tile.r + thread] : 0;
  const int exponent = thread < outputs ? to.exponents[o_begin + thread] : 0;

  float total[kUnits][kTileRows / 2] = {};
  const int stretches = int(fp8_stretches(a.in_dim));
  const uint64_t w_first = descriptor(stages + group * kOutputsOfGroup * kFp8Stretch);
  const uint64_t x_first = descriptor(stages + kOutputsBytes + tile.r % 8 * kFp8Stretch);
  for (int k = 0; k < stretches; ++k, stage.next()) {
    const uint64_t at = uint64_t(stage.index * (kStageBytes >> 4));
    wait(shared.full[stage.index], stage.parity);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      float sum[kTileRows / 2];
      begin_multiply();
#pragma unroll
      for (int i = 0; i < kFp8Stretch / 32; ++i)
        multiply(sum, w_first + at + unit * (kUnitOutputs * kFp8Stretch >> 4) + i * (32 >> 4),
                 x_first + at + i * (32 >> 4), i > 0);
      end_multiply(sum);
#pragma unroll
      for (int i = 0; i < kTileRows / 2; ++i) total[unit][i] += sum[i];
    }
    if (lane == 0) arrive(shared.empty[stage.index]);
  }

  // The sums of a thread: output lane / 4 and 8 above it of each unit, two rows of every eight.
  if (outputs <= 0) return;
  float* y = to.y + o_begin;
  const bool aligned = ((uint64_t(y) / sizeof(float)) | uint64_t(a.y_stride) | uint64_t(outputs)) % 4 == 0;
  float *row_scales = shared.row_scales[group], *powers = shared.powers[group];
  row_scales[thread] = row_scale, powers[thread] = ldexpf(1, exponent - 127);
  sync_group(group);
  float power[kUnits][2];
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      power[unit][half] = powers[unit * kUnitOutputs + warp * 16 + lane / 4 + 8 * half];
  float* leaving = shared.leaving[group];
#pragma unroll
  for (int first = 0; first < kTileRows; first += kLeaving) {
    if (first >= tile.rows) break;
    sync_group(group);
#pragma unroll
    for (int i = 0; i < kLeaving / 4; ++i) {
      const int of_leaving = i / 2 * 8 + lane % 4 * 2 + i % 2;
      const float scale = row_scales[first + of_leaving];
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          leaving[of_leaving * kLeavingStride + unit * kUnitOutputs + warp * 16 + lane / 4 + 8 * half] =
              total[unit][(first / 8 + i / 2) * 4 + 2 * half + i % 2] * scale * power[unit][half];
    }
    sync_group(group);
    for (int i = warp; i < min(kLeaving, tile.rows - first); i += kGroupThreads / kWarp) {
      const float* from = leaving + i * kLeavingStride;
      float* row = y + (tile.r + first + i) * a.y_stride;
      if (!aligned)
        for (int o = lane; o < outputs; o += kWarp) row[o] = from[o];
      else if (4 * lane < outputs)
        *reinterpret_cast<float4*>(row + 4 * lane) = *reinterpret_cast<const float4*>(from + 4 * lane);
    }
  }
}
#endif

// Grid (multiprocessors). Reads each matrix once per tile of the other.
__global__ void __launch_bounds__(kThreads, 1)
    fp8_expert_linear_kernel(const __grid_constant__ Fp8ExpertLinearArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* stages = reinterpret_cast<uint8_t*>((uint64_t(dynamic_shared<uint8_t>()) + 1023) / 1024 * 1024);
  Shared& shared = *reinterpret_cast<Shared*>(stages + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full[stage], 1);
      init_barrier(shared.empty[stage], kGroups * kGroupThreads / kWarp);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  wait_for_kernel_before();
  Tiles::count(a, shared);

  Tiles tile{a, shared};
  Stage stage;
  if (threadIdx.x >= kGroups * kGroupThreads) {
    keep_registers<24>();
    if (threadIdx.x == kGroups * kGroupThreads)
      while (tile.next()) load_tile(a, tile, stages, shared, stage);
  } else {
    take_registers<240>();
    const int group = threadIdx.x / kGroupThreads;
    while (tile.next()) {
      if (tile.rows > kRows / 2)
        multiply_tile<kRows>(a, tile, stages, shared, stage, group);
      else
        multiply_tile<kRows / 2>(a, tile, stages, shared, stage, group);
    }
  }
  start_next_kernel();
#endif
}

}  // namespace

void sm90::fp8_expert_linear(const Fp8ExpertLinearArgs& a, Queue& queue) {
  if (a.rows == 0) return;
  const int multiprocessors = static_cast<CudaQueue&>(queue).device().multiprocessors;
  const int blocks = multiprocessors - fp8_expanding(multiprocessors, a.rows_beside);
  for (int g = 0; g < a.num_groups; g += kGroupsMax) {
    Fp8ExpertLinearArgs some = a;
    some.groups += g, some.num_groups = a.num_groups - g < kGroupsMax ? a.num_groups - g : kGroupsMax;
    launch(queue, unsigned(blocks), kThreads, kSharedBytes, fp8_expert_linear_kernel, some);
  }
}

}  // namespace dsa
