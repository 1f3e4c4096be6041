// kernels/fp8_expert_linear/fp8_expert_linear_sm90.cu: wgmma on tiles of 128 rows x 128 outputs, fed by bulk copies.
//
// A block stays on its multiprocessor and takes tiles in turn. One warp copies stretches of 128 columns of both matrices
// into shared memory, kStages ahead, one piece of memory each; two warpgroups of 64 rows multiply them. The matrix units
// keep few bits of a sum, so each stretch is summed by itself and added in f32.
#include "kernels/common/cuda.cuh"
#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

namespace dsa {
namespace {

constexpr int kRows = 128, kOutputs = 128, kStages = 6;
constexpr int kGroupThreads = 128, kGroups = 2;            // warpgroups that multiply
constexpr int kThreads = kGroups * kGroupThreads + kWarp;  // and the warp that copies
constexpr int kRowsBytes = kRows * kFp8Stretch, kOutputsBytes = kOutputs * kFp8Stretch;
constexpr size_t kSharedBytes = size_t(kStages) * (kRowsBytes + kOutputsBytes) + 1024;  // aligned by hand

struct Barriers {
  uint64_t full[kStages], empty[kStages];
};

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
__device__ void copy_bulk(void* shared, const void* global, uint32_t bytes, uint64_t& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          address_of(shared)),
      "l"(global), "r"(bytes), "r"(address_of(&barrier))
      : "memory");
}

// A matrix in shared memory: rows of 128 bytes, swizzled over 128 bytes, eight rows every 1024 bytes.
__device__ uint64_t descriptor(const void* shared) {
  return (uint64_t(address_of(shared)) >> 4 & 0x3fff) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
// d (+)= a b^T: 64 rows, 128 outputs, 32 columns.
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
__device__ void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wait_multiply() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
#endif

// The tiles of all groups, in order: the row tiles of an output tile follow each other and share its weights. The first
// row of a tile is a multiple of 8, as the order of the units asks; rows below the group are computed for nothing.
struct Tiles {
  const Fp8ExpertLinearArgs& a;
  int group = 0, begin = 0, end = 0, first = 0;  // rows of the group; its first tile
  int row_tiles = 0, r = 0, o = 0;               // the tile: first row, first output

  __device__ explicit Tiles(const Fp8ExpertLinearArgs& args) : a(args) { read(); }
  __device__ void read() {
    begin = a.groups[group].range[0], end = a.groups[group].range[1];
    row_tiles = begin < end ? (end - begin / 8 * 8 + kRows - 1) / kRows : 0;
  }
  // Moves to tile `index`, which does not fall; false if there is none.
  __device__ bool seek(int index) {
    const int output_tiles = (a.out_dim + kOutputs - 1) / kOutputs;
    while (index - first >= row_tiles * output_tiles) {
      first += row_tiles * output_tiles;
      if (++group == a.num_groups) return false;
      read();
    }
    r = begin / 8 * 8 + (index - first) % row_tiles * kRows;
    o = (index - first) / row_tiles * kOutputs;
    return true;
  }
};

// Grid (multiprocessors). Reads each matrix once per tile of the other.
__global__ void __launch_bounds__(kThreads, 1)
    fp8_expert_linear_kernel(const __grid_constant__ Fp8ExpertLinearArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint8_t* unaligned = dynamic_shared<uint8_t>();
  __shared__ Barriers barriers;
  uint8_t* rows =
      reinterpret_cast<uint8_t*>((uint64_t(unaligned) + 1023) / 1024 * 1024);  // [kStages, kRowsBytes]
  uint8_t* outputs = rows + kStages * kRowsBytes;                              // [kStages, kOutputsBytes]
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage)
      init_barrier(barriers.full[stage], 1), init_barrier(barriers.empty[stage], kGroups);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  begin_kernel();

  const int stretches = int(fp8_stretches(a.in_dim));
  int stage = 0;
  uint32_t parity = 0;
  const auto next_stage = [&] {
    if (++stage == kStages) stage = 0, parity ^= 1;
  };

  Tiles tile(a);
  if (threadIdx.x >= kGroups * kGroupThreads) {
    if (threadIdx.x > kGroups * kGroupThreads) return;
    for (int index = blockIdx.x; tile.seek(index); index += gridDim.x) {
      const uint32_t row_bytes = min(kRows, a.rows - tile.r) * kFp8Stretch;
      const uint32_t output_bytes = min(kOutputs, a.out_dim - tile.o) * kFp8Stretch;
      const uint8_t* x = a.x + int64_t(tile.r) * kFp8Stretch;
      const uint8_t* w = a.groups[tile.group].weight + int64_t(tile.o) * kFp8Stretch;
      for (int k = 0; k < stretches; ++k, next_stage()) {
        wait(barriers.empty[stage], parity ^ 1);
        expect_bytes(barriers.full[stage], row_bytes + output_bytes);
        copy_bulk(rows + stage * kRowsBytes, x + int64_t(k) * a.rows * kFp8Stretch, row_bytes,
                  barriers.full[stage]);
        copy_bulk(outputs + stage * kOutputsBytes, w + int64_t(k) * a.out_dim * kFp8Stretch, output_bytes,
                  barriers.full[stage]);
      }
    }
    return;
  }

  const int group = threadIdx.x / kGroupThreads, lane = threadIdx.x % kWarp;
  const int row_of_thread = threadIdx.x / kWarp * 16 + lane / 4;  // and 8 below it; warps of both warpgroups
  for (int index = blockIdx.x; tile.seek(index); index += gridDim.x) {
    float total[64] = {};
    for (int k = 0; k < stretches; ++k, next_stage()) {
      float sum[64];
      wait(barriers.full[stage], parity);
      const uint64_t x = descriptor(rows + stage * kRowsBytes + group * (kRowsBytes / kGroups));
      const uint64_t w = descriptor(outputs + stage * kOutputsBytes);
      begin_multiply();
#pragma unroll
      for (int i = 0; i < kFp8Stretch / 32; ++i) multiply(sum, x + i * (32 >> 4), w + i * (32 >> 4), i > 0);
      commit_multiply();
      wait_multiply();
      if (threadIdx.x % kGroupThreads == 0) arrive(barriers.empty[stage]);
#pragma unroll
      for (int i = 0; i < 64; ++i) total[i] += sum[i];
    }

    const Fp8ExpertLinearGroup to = a.groups[tile.group];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = tile.r + row_of_thread + 8 * half;
      if (r < tile.begin || r >= tile.end) continue;
      const float scale = a.x_scales[r];
      float* y = to.y + r * a.y_stride;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const int o = tile.o + 8 * j + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (o + i < a.out_dim)
            y[o + i] = ldexpf(total[4 * j + 2 * half + i] * scale, to.exponents[o + i] - 127);
      }
    }
  }
#endif
}

}  // namespace

void sm90::fp8_expert_linear(const Fp8ExpertLinearArgs& a, Queue& queue) {
  if (a.rows == 0 || a.num_groups == 0) return;
  launch(queue, unsigned(static_cast<CudaQueue&>(queue).device().multiprocessors), kThreads, kSharedBytes,
         fp8_expert_linear_kernel, a);
}

}  // namespace dsa
