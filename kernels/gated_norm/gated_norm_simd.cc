// kernels/gated_norm/gated_norm_simd.cc: groups of heads of a row go to the threads.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/gated_norm/gated_norm.h"

namespace dsa {

void DSA_ISA::gated_norm(const GatedNormArgs& a, Queue& queue) {
  constexpr int64_t kGroup = 16;  // heads
  const int64_t count = a.rows * a.heads;
  queue.parallel_for((count + kGroup - 1) / kGroup, [&](int64_t group) {
    const int64_t end = group * kGroup + kGroup < count ? group * kGroup + kGroup : count;
    for (int64_t i = group * kGroup; i < end; ++i) {
      const float *x = a.x + i * a.dim, *gate = a.gate + i * a.dim;
      float* y = a.y + i * a.dim;
      const Vec factor = set(1 / std::sqrt(dot(x, x, a.dim) / float(a.dim) + a.eps));
      for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
        const Vec normed = mul(mul(load(x + d, n), factor), load(a.weight + d, n));
        store(mul(normed, sigmoid(load(gate + d, n))), y + d, n);
      });
    }
  });
}

}  // namespace dsa
