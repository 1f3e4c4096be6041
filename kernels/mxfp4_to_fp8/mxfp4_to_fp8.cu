// kernels/mxfp4_to_fp8/mxfp4_to_fp8.cu: warps take pieces of matrices. Four lanes take the blocks of a stretch, and exchange
// words so that each has what it writes.
#include "kernels/common/cuda.cuh"
#include "kernels/common/mxfp4_codes.cuh"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {
namespace {

constexpr int kThreads = 1024;  // a block fills a multiprocessor
constexpr int kRows = 8, kStretches = 4,
              kBlocks = kFp8Stretch / kMxfp4Block;  // of a piece: what a warp takes
constexpr int kRowsAtOnce = kWarp / (kStretches * kBlocks), kTurns = kRows / kRowsAtOnce;

// Lane q of four holds words[i]; afterwards, as words[i], what lane i held as words[q].
__device__ void transpose(uint32_t (&words)[4], int q) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(kAllLanes, q & 2 ? words[i] : words[i + 2], 2);
    words[i] = q & 2 ? got : words[i], words[i + 2] = q & 2 ? words[i + 2] : got;
  }
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(kAllLanes, q & 1 ? words[i] : words[i + 1], 1);
    words[i] = q & 1 ? got : words[i], words[i + 1] = q & 1 ? words[i + 1] : got;
  }
}

// Grid: any number of blocks. Pieces are kRows rows of kStretches stretches, `across` of them beside each other. Reads 17
// bytes and writes 32 for each block of 32 values.
__global__ void __launch_bounds__(kThreads, 1)
    mxfp4_to_fp8_kernel(const __grid_constant__ Mxfp4ToFp8Args a, unsigned across, unsigned pieces) {
  __shared__ uint2 table[kShifts];
  fill_shift_table(table);
  __syncthreads();
  begin_kernel();

  const int blocks = a.in_dim / kMxfp4Block, stretches = int(fp8_stretches(a.in_dim));
  const unsigned warp = threadIdx.x / kWarp, warps = gridDim.x * (kThreads / kWarp);
  const int lane = threadIdx.x % kWarp, q = lane % kBlocks, r_first = lane / (kStretches * kBlocks);
  for (unsigned i = blockIdx.x * (kThreads / kWarp) + warp; i < pieces * unsigned(a.num_groups); i += warps) {
    const Mxfp4ToFp8Group& group = a.groups[i / pieces];
    if (group.range && group.range[0] == group.range[1]) continue;
    const int o_begin = int(i % pieces / across) * kRows, rows = min(kRows, a.out_dim - o_begin);
    const int stretch = int(i % pieces % across) * kStretches + lane / kBlocks % kStretches,
              block = stretch * kBlocks + q;
    const bool exists = block < blocks;  // what fills up the last stretch does not
    const int64_t at = int64_t(o_begin) * blocks + block;
    const auto* blocks_at = reinterpret_cast<const uint4*>(group.blocks) + at;
    const uint8_t* scales = group.scales + at;
    const int16_t* exponents = group.exponents + o_begin;

    uint4 codes[kTurns];
    int shifts[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int r = turn * kRowsAtOnce + r_first;
      codes[turn] = {}, shifts[turn] = 0;
      if (r >= rows || !exists) continue;
      codes[turn] = __ldcs(blocks_at + r * blocks);
      shifts[turn] = scales[r * blocks] - exponents[r];
    }
    // Lane q writes units q and q + 4: the first or the second halves of words q / 2 and q / 2 + 2 of each block.
    uint8_t* to = group.codes + (int64_t(stretch) * a.out_dim + o_begin) * kFp8Stretch;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int r = turn * kRowsAtOnce + r_first;
      uint32_t words[4] = {__byte_perm(codes[turn].x, codes[turn].z, 0x5410),
                           __byte_perm(codes[turn].x, codes[turn].z, 0x7632),
                           __byte_perm(codes[turn].y, codes[turn].w, 0x5410),
                           __byte_perm(codes[turn].y, codes[turn].w, 0x7632)};
      transpose(words, q);
      uint32_t entries = uint32_t(shift_entry(shifts[turn])) << 8 * q;  // of the blocks of the stretch
      entries |= __shfl_xor_sync(kAllLanes, entries, 1);
      entries |= __shfl_xor_sync(kAllLanes, entries, 2);
      if (r >= rows || stretch >= stretches) continue;
      uint2 of_block[4];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) of_block[b] = expand_codes(words[b], table[entries >> 8 * b & 0xff]);
      *reinterpret_cast<uint4*>(to + r * kFp8Stretch + (q ^ r) * kFp8Unit) = {of_block[0].x, of_block[1].x,
                                                                              of_block[2].x, of_block[3].x};
      *reinterpret_cast<uint4*>(to + r * kFp8Stretch + ((q + 4) ^ r) * kFp8Unit) = {
          of_block[0].y, of_block[1].y, of_block[2].y, of_block[3].y};
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
