// kernels/fp8_pack/fp8_pack_ref.cc: plain loops; rows go to the threads.
#include <cmath>

#include "kernels/fp8_pack/fp8_pack.h"

namespace dsa {

void ref::fp8_pack(const Fp8PackArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    const float* x = a.x + (a.pairs ? a.pairs[r] / a.top_k : r) * a.x_stride;
    float largest = 0;
    for (int i = 0; i < a.in_dim; ++i)
      largest = std::isnan(x[i]) ? x[i] : std::fmax(largest, std::fabs(x[i]));
    const float scale = largest == 0 ? 1 : largest / 448;
    a.scales[r] = scale;
    for (int i = 0; i < fp8_stretches(a.in_dim) * kFp8Stretch; ++i)
      a.codes[fp8_tile_offset(a.rows, r, i)] = i < a.in_dim ? f32_to_e4m3(x[i] / scale) : uint8_t(0);
  });
}

}  // namespace dsa
