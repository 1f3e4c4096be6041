// tests/support/gpu_rounding.h: what the fast route of MXFP4 products makes of activations on a GPU.
#pragma once

#include <algorithm>
#include <cmath>

namespace dsa::test {

// Stretches of 256 activations become integers of 14 bits and a sign times a power of two.
inline void round_for_mxfp4_on_gpu(float* row, int dim) {
  for (int begin = 0; begin < dim; begin += 256) {
    const int end = std::min(begin + 256, dim);
    float largest = 0;
    for (int i = begin; i < end; ++i) largest = std::max(largest, std::abs(row[i]));
    const float unit = std::ldexp(1.f, largest >= 0x1p-111f ? std::ilogb(largest) - 13 : -125);
    for (int i = begin; i < end; ++i) row[i] = std::nearbyint(row[i] / unit) * unit;
  }
}

}  // namespace dsa::test
