// kernels/rms_norm/rms_norm_simd.cc: two passes over a row that fits in L1.
#include "kernels/common/simd.h"
#include "kernels/rms_norm/rms_norm.h"

namespace dsa {
namespace DSA_ISA {

constexpr int kSums = 4;  // independent, to hide the latency of fma

static float sum_of_squares(const float* x, int dim) {
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  int d = 0;
  for (; d + kSums * kLanes <= dim; d += kSums * kLanes)
    for (int j = 0; j < kSums; ++j) {
      const Vec v = load(x + d + j * kLanes);
      sums[j] = fma(v, v, sums[j]);
    }
  for_each_vector(d, dim, [&](int64_t i, size_t n) {
    const Vec v = load(x + i, n);
    sums[0] = fma(v, v, sums[0]);
  });
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void rms_norm(const RmsNormArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    const float* x = a.x + r * a.x_stride;
    float* y = a.y + r * a.y_stride;
    const Vec scale = set(1 / std::sqrt(sum_of_squares(x, a.dim) / float(a.dim) + a.eps));
    for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
      store(mul(mul(load(x + d, n), scale), load(a.weight + d, n)), y + d, n);
    });
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
