// kernels/mxfp4_to_fp8/mxfp4_to_fp8.cu: one warp a row. Magnitudes come from a table of bytes, signs by moving bits.
#include "kernels/common/cuda.cuh"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {
namespace {

constexpr int kWarps = 8;                       // rows of a block
constexpr int kShiftMin = -13, kShiftMax = 10;  // below, every code is 0; above, all but that of 0 are 448
constexpr int kShifts = kShiftMax - kShiftMin + 1;
constexpr int kUnit = 16, kUnitsAtOnce = 8;  // codes that a lane reads at once; how often before it writes

// Eight codes in a word become eight bytes: `low` and `high` are the magnitudes' bytes, least magnitude first.
__device__ uint2 expand(uint32_t word, uint2 table) {
  const uint32_t odd = word, even = word << 4;  // the sign of each second nibble is bit 7 of a byte
  const uint32_t first = __byte_perm(table.x, table.y, word & 0x7777),
                 second = __byte_perm(table.x, table.y, word >> 16 & 0x7777);
  return {first | (__byte_perm(even, odd, 0x5140) & 0x80808080u),
          second | (__byte_perm(even, odd, 0x7362) & 0x80808080u)};
}

// Grid (ceil(out_dim / kWarps), num_groups). Reads 17 bytes and writes 32 for each block of 32 values.
__global__ void __launch_bounds__(kWarps* kWarp)
    mxfp4_to_fp8_kernel(const __grid_constant__ Mxfp4ToFp8Args a) {
  __shared__ uint2 tables[kShifts];  // of a shift: the codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6 times 2^shift
  begin_kernel();
  const Mxfp4ToFp8Group group = a.groups[blockIdx.y];
  if (group.range && group.range[0] == group.range[1]) return;
  if (threadIdx.x < 8 * kShifts) {
    const float power = bits_to_f32(uint32_t(127 + kShiftMin + int(threadIdx.x) / 8) << 23);
    reinterpret_cast<uint8_t*>(tables)[threadIdx.x] = f32_to_e4m3(e2m1_to_f32(threadIdx.x % 8) * power);
  }
  __syncthreads();

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t o = blockIdx.x * int64_t(kWarps) + warp;
  if (o >= a.out_dim) return;
  const int units = a.in_dim / kUnit, exponent = group.exponents[o];
  const auto* words = reinterpret_cast<const uint2*>(group.blocks + o * (a.in_dim / 2));
  const uint8_t* scales = group.scales + o * (a.in_dim / kMxfp4Block);
  const auto out = [&](int unit) {
    return reinterpret_cast<uint4*>(group.codes + fp8_tile_offset(a.out_dim, o, int64_t(unit) * kUnit));
  };
  for (int begin = lane; begin < units; begin += kUnitsAtOnce * kWarp) {
    uint2 word[kUnitsAtOnce];
    int scale[kUnitsAtOnce];
#pragma unroll
    for (int i = 0; i < kUnitsAtOnce; ++i) {
      const int unit = begin + i * kWarp;
      if (unit < units) word[i] = __ldcs(words + unit), scale[i] = scales[unit / 2];
    }
#pragma unroll
    for (int i = 0; i < kUnitsAtOnce; ++i) {
      const int unit = begin + i * kWarp;
      if (unit >= units) break;
      const uint2 table = tables[max(kShiftMin, min(kShiftMax, scale[i] - exponent)) - kShiftMin];
      const uint2 low = expand(word[i].x, table), high = expand(word[i].y, table);
      *out(unit) = {low.x, low.y, high.x, high.y};
    }
  }
  const int units_filled = int(fp8_stretches(a.in_dim)) * (kFp8Stretch / kUnit);
  for (int unit = units + lane; unit < units_filled; unit += kWarp) *out(unit) = {};
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

void cuda::mxfp4_to_fp8(const Mxfp4ToFp8Args& a, Queue& queue) {
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, kWarps)), unsigned(a.num_groups)), kWarps * kWarp, 0,
         mxfp4_to_fp8_kernel, a);
}

}  // namespace dsa
