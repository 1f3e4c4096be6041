// kernels/mxfp4_to_fp8/mxfp4_to_fp8_ref.cc: plain loops, one thread.
#include <algorithm>
#include <cmath>

#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {

void ref::mxfp4_exponents(const Mxfp4ExponentsArgs& a, Queue&) {
  constexpr int kBytes = kMxfp4Block / 2;  // of a block
  const int blocks = a.in_dim / kMxfp4Block;
  for (int64_t r = 0; r < a.rows; ++r) {
    int smallest = 256, largest = -1;
    for (int64_t b = r * blocks; b < (r + 1) * blocks; ++b) {
      const bool zero = std::all_of(a.blocks + b * kBytes, a.blocks + (b + 1) * kBytes,
                                    [](uint8_t byte) { return (byte & 0x77) == 0; });
      if (zero) continue;
      smallest = std::min<int>(smallest, a.scales[b]);
      largest = std::max<int>(largest, a.scales[b]);
    }
    a.exponents[r] = int16_t(largest < 0 ? 0 : largest - 6);
    a.spreads[r] = uint8_t(largest < 0 ? 0 : largest - smallest);
  }
}

void ref::mxfp4_to_fp8(const Mxfp4ToFp8Args& a, Queue&) {
  for (int g = 0; g < a.num_groups; ++g) {
    const Mxfp4ToFp8Group& group = a.groups[g];
    if (group.range && group.range[0] == group.range[1]) continue;
    for (int64_t o = 0; o < a.out_dim; ++o)
      for (int i = 0; i < fp8_stretches(a.in_dim) * kFp8Stretch; ++i) {
        uint8_t& code = group.codes[fp8_tile_offset(a.out_dim, o, i)];
        code = 0;
        if (i >= a.in_dim) continue;
        const uint8_t byte = group.blocks[(o * a.in_dim + i) / 2];
        const int s = group.scales[(o * a.in_dim + i) / kMxfp4Block] - group.exponents[o];
        code = f32_to_e4m3(std::ldexp(e2m1_to_f32(uint8_t(i % 2 ? byte >> 4 : byte & 15)), s));
      }
  }
}

}  // namespace dsa
