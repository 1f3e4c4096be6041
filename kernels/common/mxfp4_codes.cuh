// kernels/common/mxfp4_codes.cuh: E2M1 codes become E4M3 codes. Magnitudes come from a table of bytes, signs by moving bits.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

// By how many powers of two a block is shifted. Below, every code is 0; above, all but that of 0 are 448.
constexpr int kShiftMin = -13, kShiftMax = 10, kShifts = kShiftMax - kShiftMin + 1;

// Entry e of the table: the codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6 times 2^(e + kShiftMin), in shared memory. Threads of the
// block from 0 on fill it.
__device__ inline void fill_shift_table(uint2* table) {
  if (threadIdx.x >= 8 * kShifts) return;
  const float power = bits_to_f32(uint32_t(127 + kShiftMin + int(threadIdx.x) / 8) << 23);
  reinterpret_cast<uint8_t*>(table)[threadIdx.x] = f32_to_e4m3(e2m1_to_f32(threadIdx.x % 8) * power);
}
__device__ inline int shift_entry(int shift) { return max(kShiftMin, min(kShiftMax, shift)) - kShiftMin; }

// Eight codes in a word become eight bytes, by their entry of the table.
__device__ inline uint2 expand_codes(uint32_t word, uint2 entry) {
  const uint32_t magnitudes = word & 0x77777777u;
  const uint32_t odd = word, even = word << 4;  // the sign of each second nibble is bit 7 of a byte
  const uint32_t first = __byte_perm(entry.x, entry.y, magnitudes),
                 second = __byte_perm(entry.x, entry.y, magnitudes >> 16);
  return {first | (__byte_perm(even, odd, 0x5140) & 0x80808080u),
          second | (__byte_perm(even, odd, 0x7362) & 0x80808080u)};
}

}  // namespace dsa
