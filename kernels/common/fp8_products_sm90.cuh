// kernels/common/fp8_products_sm90.cuh: what the products of FP8 experts on Hopper share.
//
// A block stays on its multiprocessor and takes tiles in turn: outputs of one group times rows of it. One warpgroup brings
// stretches of 128 columns of both matrices to shared memory, some stages ahead; the others multiply. Outputs are the long
// side of the matrix units, so that few rows waste little. The units keep few bits of a sum: each stretch is summed by
// itself and added in f32.
#pragma once

#include "kernels/common/fp8_tiles.h"
#include "kernels/common/hopper.cuh"

namespace dsa {

constexpr int kMultiplying = 2;  // warpgroups; one more brings data
constexpr int kProductThreads = (kMultiplying + 1) * kGroupThreads;
constexpr int kUnitOutputs = 64;  // of one instruction
constexpr int kGroupsMax = 512;   // of experts in a launch

// Sums leave through shared memory, some rows at a time; the padding keeps writes apart.
template <int kRows, int kOutputs>
struct Leaving {
  static constexpr int kAtOnce = 16;
  float sums[kAtOnce * (kOutputs + 4)];
  float row_scales[kRows], powers[kOutputs];
};

struct TileCounts {
  int first[kGroupsMax + 1];  // tile of each group, and how many there are
  int begin[kGroupsMax], end[kGroupsMax];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The shared memory that a launch asks for, where operands may begin.
__device__ inline uint8_t* shared_operands() {
  extern __shared__ __align__(1024) uint8_t shared_operand_memory[];
  return shared_operand_memory;
}

__device__ inline void expect_bytes(uint64_t& barrier, uint32_t bytes) {  // arrives as well
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void copy_in(void* shared, const void* global, uint32_t bytes, uint64_t& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          address_of(shared)),
      "l"(global), "r"(bytes), "r"(address_of(&barrier))
      : "memory");
}
__device__ inline void sync_group(int group) {
  if (group == 0)
    asm volatile("bar.sync 1, %0;" ::"n"(kGroupThreads) : "memory");
  else
    asm volatile("bar.sync 2, %0;" ::"n"(kGroupThreads) : "memory");
}

// A matrix in shared memory: rows of 128 bytes, swizzled over 128 bytes, eight rows every 1024 bytes.
__device__ inline uint64_t descriptor(const void* shared) {
  return (uint64_t(address_of(shared)) >> 4 & 0x3fff) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
template <int kStages>
struct Stage {
  int index = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++index == kStages) index = 0, parity ^= 1;
  }
};

// The tiles of all groups, in order: the row tiles of an output tile follow each other and share its weights.
// Blocks take them in turn, in each round one place further on, so that none has only the small ones.
// Shape{rows of the group} says how large its tiles are: `rows` x `outputs`.
template <class Shape, class Args>
struct Tiles {
  const Args& a;
  const TileCounts& counts;
  int group = 0, round = 0;
  int r = 0, rows = 0, o = 0;  // the tile: first row, how many, first output
  int of_group = 0;            // rows

  // All threads of the block.
  __device__ static void count(const Args& a, TileCounts& counts) {
    for (int g = threadIdx.x; g < a.num_groups; g += kProductThreads) {
      const int32_t* range = a.groups[g].range;
      counts.begin[g] = range[0], counts.end[g] = range[1];
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
      int before = 0;
      for (int begin = 0; begin < a.num_groups; begin += kWarp) {
        const int g = begin + int(threadIdx.x);
        int tiles = 0;
        if (g < a.num_groups) {
          const int rows = counts.end[g] - counts.begin[g];
          const Shape shape(rows);
          tiles = (rows + shape.rows - 1) / shape.rows * ((a.out_dim + shape.outputs - 1) / shape.outputs);
        }
        int sum = tiles;
        for (int lanes = 1; lanes < kWarp; lanes *= 2) {
          const int below = __shfl_up_sync(kAllLanes, sum, lanes);
          if (int(threadIdx.x) >= lanes) sum += below;
        }
        if (g < a.num_groups) counts.first[g] = before + sum - tiles;
        before += __shfl_sync(kAllLanes, sum, kWarp - 1);
      }
      if (threadIdx.x == 0) counts.first[a.num_groups] = before;
    }
    __syncthreads();
  }
  // Moves to the next tile of the block; false if there is none.
  __device__ bool next() {
    const int index = round * int(gridDim.x) + int((blockIdx.x + unsigned(round)) % gridDim.x);
    ++round;
    if (index >= counts.first[a.num_groups]) return false;
    while (index >= counts.first[group + 1]) ++group;
    of_group = counts.end[group] - counts.begin[group];
    const Shape shape(of_group);
    const int tile = index - counts.first[group], row_tiles = (of_group + shape.rows - 1) / shape.rows;
    r = counts.begin[group] + tile % row_tiles * shape.rows;
    rows = min(shape.rows, counts.end[group] - r);
    o = tile / row_tiles * shape.outputs;
    return true;
  }
};

// Of a warpgroup: the sums of kUnits units of outputs and up to kSums * 2 rows, to `rows` rows of y from row r on, scaled.
// A thread has output lane / 4 and 8 above it of each unit, two rows of every eight. Scales of rows and the powers of two
// of outputs lie in `leaving`, written before the group met.
template <int kUnits, int kSums, int kRows, int kOutputs>
__device__ void leave(const float (&total)[kUnits][kSums], int first_row, int rows, int outputs, float* y,
                      int64_t y_stride, Leaving<kRows, kOutputs>& leaving, int group) {
  constexpr int kAtOnce = Leaving<kRows, kOutputs>::kAtOnce, kStride = kOutputs + 4;
  const int warp = threadIdx.x % kGroupThreads / kWarp, lane = threadIdx.x % kWarp;
  const bool aligned = ((uint64_t(y) / sizeof(float)) | uint64_t(y_stride) | uint64_t(outputs)) % 4 == 0;
  float power[kUnits][2];
#pragma unroll
  for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      power[unit][half] = leaving.powers[unit * kUnitOutputs + warp * 16 + lane / 4 + 8 * half];
#pragma unroll
  for (int first = 0; first < 2 * kSums; first += kAtOnce) {
    if (first >= rows) break;
    sync_group(group);
#pragma unroll
    for (int i = 0; i < kAtOnce / 4; ++i) {
      const int of_leaving = i / 2 * 8 + lane % 4 * 2 + i % 2;
      const float scale = leaving.row_scales[first_row + first + of_leaving];
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          leaving.sums[of_leaving * kStride + unit * kUnitOutputs + warp * 16 + lane / 4 + 8 * half] =
              total[unit][(first / 8 + i / 2) * 4 + 2 * half + i % 2] * scale * power[unit][half];
    }
    sync_group(group);
    for (int i = warp; i < min(kAtOnce, rows - first); i += kGroupThreads / kWarp) {
      const float* from = leaving.sums + i * kStride;
      float* row = y + (first_row + first + i) * y_stride;
      if (!aligned)
        for (int o = lane; o < outputs; o += kWarp) row[o] = from[o];
      else if (4 * lane < outputs)
        *reinterpret_cast<float4*>(row + 4 * lane) = *reinterpret_cast<const float4*>(from + 4 * lane);
    }
  }
}
#endif

}  // namespace dsa
