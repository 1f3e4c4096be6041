// kernels/mxfp4_to_fp8/mxfp4_to_fp8.cu: warps take pieces of matrices. Magnitudes come from a table of bytes, signs by
// moving bits.
#include "kernels/common/cuda.cuh"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {
namespace {

constexpr int kThreads = 128, kBlocks = 9;      // of a multiprocessor
constexpr int kShiftMin = -13, kShiftMax = 10;  // below, every code is 0; above, all but that of 0 are 448
constexpr int kShifts = kShiftMax - kShiftMin + 1;
constexpr int kUnit = 16, kUnitsAtOnce = 8;   // codes that a lane reads at once; how often before it writes
constexpr int kPiece = kUnitsAtOnce * kWarp;  // units of a matrix that a warp takes

// Eight codes in a word become eight bytes: `low` and `high` are the magnitudes' bytes, least magnitude first.
__device__ uint2 expand(uint32_t word, uint2 table) {
  const uint32_t odd = word, even = word << 4;  // the sign of each second nibble is bit 7 of a byte
  const uint32_t first = __byte_perm(table.x, table.y, word & 0x7777),
                 second = __byte_perm(table.x, table.y, word >> 16 & 0x7777);
  return {first | (__byte_perm(even, odd, 0x5140) & 0x80808080u),
          second | (__byte_perm(even, odd, 0x7362) & 0x80808080u)};
}

// Grid: any number of blocks; `pieces` are those of one matrix. Reads 17 bytes and writes 32 for each block of 32 values.
__global__ void __launch_bounds__(kThreads, kBlocks)
    mxfp4_to_fp8_kernel(const __grid_constant__ Mxfp4ToFp8Args a, unsigned pieces) {
  __shared__ uint2 tables[kShifts];  // of a shift: the codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6 times 2^shift
  for (int i = threadIdx.x; i < 8 * kShifts; i += kThreads) {
    const float power = bits_to_f32(uint32_t(127 + kShiftMin + i / 8) << 23);
    reinterpret_cast<uint8_t*>(tables)[i] = f32_to_e4m3(e2m1_to_f32(uint8_t(i % 8)) * power);
  }
  __syncthreads();
  begin_kernel();

  const int lane = threadIdx.x % kWarp;
  const int units = a.in_dim / kUnit, units_filled = int(fp8_stretches(a.in_dim)) * (kFp8Stretch / kUnit);
  const int rows_step = kWarp / units_filled,
            units_step = kWarp % units_filled;  // from a unit of a lane to its next
  const unsigned warps = gridDim.x * (kThreads / kWarp);
  for (unsigned i = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < pieces * unsigned(a.num_groups); i += warps) {
    const Mxfp4ToFp8Group& group = a.groups[i / pieces];
    if (group.range && group.range[0] == group.range[1]) continue;
    const unsigned first = i % pieces * kPiece + unsigned(lane);
    int o = int(first / unsigned(units_filled)), unit = int(first % unsigned(units_filled));
    const auto advance = [&] {
      o += rows_step, unit += units_step;
      if (unit >= units_filled) unit -= units_filled, ++o;
    };

    const int o_first = o, unit_first = unit;
    uint2 words[kUnitsAtOnce];
    int shifts[kUnitsAtOnce];
#pragma unroll
    for (int j = 0; j < kUnitsAtOnce; ++j, advance()) {
      words[j] = {}, shifts[j] = 0;
      if (o >= a.out_dim || unit >= units) continue;
      const unsigned at = unsigned(o) * unsigned(units) + unsigned(unit);
      words[j] = __ldcs(reinterpret_cast<const uint2*>(group.blocks) + at);
      shifts[j] = group.scales[at / (kMxfp4Block / kUnit)] - group.exponents[o];
    }
    o = o_first, unit = unit_first;
#pragma unroll
    for (int j = 0; j < kUnitsAtOnce; ++j, advance()) {
      if (o >= a.out_dim) break;
      const uint2 table = tables[max(kShiftMin, min(kShiftMax, shifts[j])) - kShiftMin];
      const uint2 low = expand(words[j].x, table), high = expand(words[j].y, table);
      *reinterpret_cast<uint4*>(group.codes + fp8_tile_offset(a.out_dim, o, int64_t(unit) * kUnit)) = {
          low.x, low.y, high.x, high.y};
    }
  }
}

}  // namespace

void cuda::mxfp4_exponents(const Mxfp4ExponentsArgs& a, Queue& queue) {
  each_warp(queue, a.rows, [a] __device__(int64_t r, int lane) {
    const int blocks = a.in_dim / kMxfp4Block;
    int smallest = 256, largest = -1;
    for (int b = lane; b < blocks; b += kWarp) {
      const auto* words = reinterpret_cast<const uint32_t*>(a.blocks + (r * blocks + b) * (kMxfp4Block / 2));
      if (((words[0] | words[1] | words[2] | words[3]) & 0x77777777u) == 0) continue;
      const int scale = a.scales[r * blocks + b];
      smallest = min(smallest, scale), largest = max(largest, scale);
    }
    smallest = __reduce_min_sync(kAllLanes, smallest), largest = __reduce_max_sync(kAllLanes, largest);
    if (lane > 0) return;
    a.exponents[r] = int16_t(largest < 0 ? 0 : largest - 6);
    a.spreads[r] = uint8_t(largest < 0 ? 0 : largest - smallest);
  });
}

// Beside another queue one block a multiprocessor, which fits beside one of fp8_expert_linear.
void cuda::mxfp4_to_fp8(const Mxfp4ToFp8Args& a, Queue& queue) {
  const auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const int64_t pieces =
                    ceil_div(int64_t(a.out_dim) * fp8_stretches(a.in_dim) * (kFp8Stretch / kUnit), kPiece),
                wanted = ceil_div(pieces * a.num_groups, kThreads / kWarp),
                most = int64_t(cuda_queue.device().multiprocessors) * (cuda_queue.is_side() ? 1 : kBlocks);
  launch(queue, unsigned(wanted < most ? wanted : most), kThreads, 0, mxfp4_to_fp8_kernel, a,
         unsigned(pieces));
}

}  // namespace dsa
