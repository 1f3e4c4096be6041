// kernels/mxfp4_to_fp8/mxfp4_to_fp8.cu: warps take pieces of matrices. Magnitudes come from a table of bytes, signs by
// moving bits.
#include "kernels/common/cuda.cuh"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {
namespace {

constexpr int kThreads = 1024;                  // a block fills a multiprocessor
constexpr int kShiftMin = -13, kShiftMax = 10;  // below, every code is 0; above, all but that of 0 are 448
constexpr int kShifts = kShiftMax - kShiftMin + 1;
constexpr int kUnit = 16, kRows = 8,
              kStretches = kWarp / (kFp8Stretch / kUnit);  // of a piece: what a warp takes

// Eight codes in a word become eight bytes: `low` and `high` are the magnitudes' bytes, least magnitude first.
__device__ uint2 expand(uint32_t word, uint2 table) {
  const uint32_t magnitudes = word & 0x77777777u;
  const uint32_t odd = word, even = word << 4;  // the sign of each second nibble is bit 7 of a byte
  const uint32_t first = __byte_perm(table.x, table.y, magnitudes),
                 second = __byte_perm(table.x, table.y, magnitudes >> 16);
  return {first | (__byte_perm(even, odd, 0x5140) & 0x80808080u),
          second | (__byte_perm(even, odd, 0x7362) & 0x80808080u)};
}

// Grid: any number of blocks. Pieces are kRows rows of kStretches stretches, `across` of them beside each other. Reads 17
// bytes and writes 32 for each block of 32 values.
__global__ void __launch_bounds__(kThreads, 1)
    mxfp4_to_fp8_kernel(const __grid_constant__ Mxfp4ToFp8Args a, unsigned across, unsigned pieces) {
  __shared__ uint2 tables[kShifts];  // of a shift: the codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6 times 2^shift
  if (threadIdx.x < 8 * kShifts) {
    const float power = bits_to_f32(uint32_t(127 + kShiftMin + int(threadIdx.x) / 8) << 23);
    reinterpret_cast<uint8_t*>(tables)[threadIdx.x] = f32_to_e4m3(e2m1_to_f32(threadIdx.x % 8) * power);
  }
  __syncthreads();
  begin_kernel();

  const int units = a.in_dim / kUnit, stretches = int(fp8_stretches(a.in_dim));
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
                 warps = gridDim.x * (kThreads / kWarp);
  for (unsigned i = blockIdx.x * (kThreads / kWarp) + warp; i < pieces * unsigned(a.num_groups); i += warps) {
    const Mxfp4ToFp8Group& group = a.groups[i / pieces];
    if (group.range && group.range[0] == group.range[1]) continue;
    const int o_begin = int(i % pieces / across) * kRows, rows = min(kRows, a.out_dim - o_begin);
    const int unit = int(i % pieces % across * kWarp + lane);
    if (unit >= stretches * (kFp8Stretch / kUnit)) continue;
    const bool exists = unit < units;  // what fills up the last stretch does not
    const int64_t at = int64_t(o_begin) * units + unit;
    const auto* words_at = reinterpret_cast<const uint2*>(group.blocks) + at;
    const uint8_t* scales = group.scales + at / (kMxfp4Block / kUnit);
    const int16_t* exponents = group.exponents + o_begin;

    uint2 words[kRows];
    int shifts[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      words[r] = {}, shifts[r] = 0;
      if (r >= rows || !exists) continue;
      words[r] = __ldcs(words_at + r * units);
      shifts[r] = scales[r * (units / (kMxfp4Block / kUnit))] - exponents[r];
    }
    const int stretch = unit / (kFp8Stretch / kUnit), of_stretch = unit % (kFp8Stretch / kUnit);
    uint8_t* codes = group.codes + (int64_t(stretch) * a.out_dim + o_begin) * kFp8Stretch;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      const uint2 table = tables[max(kShiftMin, min(kShiftMax, shifts[r])) - kShiftMin];
      const uint2 low = expand(words[r].x, table), high = expand(words[r].y, table);
      *reinterpret_cast<uint4*>(codes + r * kFp8Stretch + (of_stretch ^ r % 8) * kUnit) = {low.x, low.y,
                                                                                           high.x, high.y};
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

void cuda::mxfp4_to_fp8(const Mxfp4ToFp8Args& a, Queue& queue) {
  const int64_t across = ceil_div(fp8_stretches(a.in_dim), kStretches),
                pieces = across * ceil_div(a.out_dim, kRows),
                wanted = ceil_div(pieces * a.num_groups, kThreads / kWarp);
  const int multiprocessors = static_cast<CudaQueue&>(queue).device().multiprocessors;
  const int64_t most = a.rows_beside > 0 ? fp8_expanding(multiprocessors, a.rows_beside) : multiprocessors;
  launch(queue, unsigned(wanted < most ? wanted : most), kThreads, 0, mxfp4_to_fp8_kernel, a,
         unsigned(across), unsigned(pieces));
}

}  // namespace dsa
