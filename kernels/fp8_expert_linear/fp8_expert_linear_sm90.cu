// kernels/fp8_expert_linear/fp8_expert_linear_sm90.cu: wgmma on tiles of 256 outputs x 128 rows, fed by bulk copies; see
// common/fp8_products_sm90.cuh. One thread copies both matrices, one piece of memory each in a stage.
#include "kernels/common/fp8_products_sm90.cuh"
#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

namespace dsa {
namespace {

constexpr int kRows = 128, kOutputs = 256, kOutputsOfGroup = kOutputs / kMultiplying, kStages = 4;
constexpr int kUnits = kOutputsOfGroup / kUnitOutputs;

// A stage: the outputs, then the rows from a multiple of 8 on.
constexpr int kOutputsBytes = kOutputs * kFp8Stretch, kRowsBytes = (kRows + 8) * kFp8Stretch,
              kStageBytes = kOutputsBytes + kRowsBytes;

struct Shared {
  Leaving<kRows, kOutputsOfGroup> leaving[kMultiplying];
  uint64_t full[kStages], empty[kStages];
  TileCounts counts;
};
constexpr size_t kSharedBytes = size_t(kStages) * kStageBytes + sizeof(Shared);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
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
struct TileShape {
  int rows = kRows, outputs = kOutputs;
  __device__ explicit TileShape(int) {}
};
using Tile = Tiles<TileShape, Fp8ExpertLinearArgs>;

__device__ void load_tile(const Fp8ExpertLinearArgs& a, const Tile& tile, uint8_t* stages, Shared& shared,
                          Stage<kStages>& stage) {
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
__device__ void multiply_tile(const Fp8ExpertLinearArgs& a, const Tile& tile, const uint8_t* stages,
                              Shared& shared, Stage<kStages>& stage, int group) {
  const int thread = threadIdx.x % kGroupThreads;
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
      commit_multiply();
      wait_multiply();
      take_product(sum);
#pragma unroll
      for (int i = 0; i < kTileRows / 2; ++i) total[unit][i] += sum[i];
    }
    if (thread % kWarp == 0) arrive(shared.empty[stage.index]);
  }

  if (outputs <= 0) return;
  auto& leaving = shared.leaving[group];
  leaving.row_scales[thread] = row_scale, leaving.powers[thread] = ldexpf(1, exponent - 127);
  sync_group(group);
  leave(total, 0, tile.rows, outputs, to.y + tile.r * a.y_stride + o_begin, a.y_stride, leaving, group);
}
#endif

// Grid (multiprocessors). Reads each matrix once per tile of the other.
__global__ void __launch_bounds__(kProductThreads, 1)
    fp8_expert_linear_kernel(const __grid_constant__ Fp8ExpertLinearArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* stages = shared_operands();
  Shared& shared = *reinterpret_cast<Shared*>(stages + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(shared.full[stage], 1);
      init_barrier(shared.empty[stage], kMultiplying * kGroupThreads / kWarp);
    }
    show_barriers();
  }
  wait_for_kernel_before();
  Tile::count(a, shared.counts);

  Tile tile{a, shared.counts};
  Stage<kStages> stage;
  if (threadIdx.x >= kMultiplying * kGroupThreads) {
    give_registers<24>();
    if (threadIdx.x == kMultiplying * kGroupThreads)
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
    launch(queue, unsigned(blocks), kProductThreads, kSharedBytes, fp8_expert_linear_kernel, some);
  }
}

}  // namespace dsa
