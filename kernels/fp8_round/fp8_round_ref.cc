// kernels/fp8_round/fp8_round_ref.cc: plain loops; rows go to the threads.
#include <cmath>

#include "kernels/common/numbers.h"
#include "kernels/fp8_round/fp8_round.h"

namespace dsa {
namespace {

// The smallest power of two that is at least x, for normal x > 0.
float power_of_two_above(float x) {
  const uint32_t bits = f32_to_bits(x);
  return bits_to_f32(((bits >> 23) + ((bits & 0x7fffff) != 0)) << 23);
}

}  // namespace

void ref::fp8_round(const Fp8RoundArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    for (int begin = 0; begin < a.dim; begin += kFp8Block) {
      float* x = a.x + r * a.dim + begin;
      const int n = a.dim - begin < kFp8Block ? a.dim - begin : kFp8Block;
      float largest = 1e-4f;
      for (int i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(x[i]));
      const float scale = power_of_two_above(largest / 448);
      for (int i = 0; i < n; ++i) x[i] = e4m3_to_f32(f32_to_e4m3(x[i] / scale)) * scale;
    }
  });
}

}  // namespace dsa
