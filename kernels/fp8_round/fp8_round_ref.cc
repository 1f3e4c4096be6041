// kernels/fp8_round/fp8_round_ref.cc: plain loops; rows go to the threads.
#include <cmath>

#include "kernels/common/paged.h"
#include "kernels/fp8_round/fp8_round.h"

namespace dsa {

void ref::fp8_round(const Fp8RoundArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    for (int begin = 0; begin < a.dim; begin += kFp8Block) {
      float* x = a.x + r * a.dim + begin;
      const int n = a.dim - begin < kFp8Block ? a.dim - begin : kFp8Block;
      float largest = 0;
      for (int i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(x[i]));
      const float scale = Fp8Row::scale_of(largest);
      for (int i = 0; i < n; ++i) x[i] = e4m3_to_f32(f32_to_e4m3(x[i] / scale)) * scale;
    }
  });
}

}  // namespace dsa
