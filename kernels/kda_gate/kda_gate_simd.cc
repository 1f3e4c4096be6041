// kernels/kda_gate/kda_gate_simd.cc: groups of heads of a row go to the threads.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/kda_gate/kda_gate.h"

namespace dsa {
namespace DSA_ISA {
namespace {

void normalise(float* x, int dim, float factor) {
  const Vec f = set(factor / std::sqrt(dot(x, x, dim) + 1e-6f));  // added to the sum, not to the mean
  for_each_vector(0, dim, [&](int64_t d, size_t n) { store(mul(load(x + d, n), f), x + d, n); });
}

}  // namespace

void kda_gate(const KdaGateArgs& a, Queue& queue) {
  constexpr int64_t kGroup = 8;  // heads
  const int64_t groups = (a.heads + kGroup - 1) / kGroup;
  const float q_factor = 1 / std::sqrt(float(a.dim));
  queue.parallel_for(a.rows * groups, [&](int64_t i) {
    const int64_t r = i / groups, begin = i % groups * kGroup;
    const int64_t end = begin + kGroup < a.heads ? begin + kGroup : a.heads;
    for (int64_t h = begin; h < end; ++h) {
      normalise(a.q + r * a.q_stride + h * a.dim, a.dim, q_factor);
      normalise(a.k + r * a.k_stride + h * a.dim, a.dim, 1);

      float* g = a.g + (r * a.heads + h) * a.dim;
      const float* dt_bias = a.dt_bias + h * a.dim;
      const Vec rate = set(std::exp(a.a_log[h])), bound = set(a.lower_bound);
      for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
        const Vec z = add(load(g + d, n), load(dt_bias + d, n));
        store(a.lower_bound == 0 ? mul(hn::Neg(rate), softplus(z)) : mul(bound, sigmoid(mul(rate, z))), g + d,
              n);
      });
    }
    float* beta = a.beta + r * a.heads;
    for_each_vector(begin, end, [&](int64_t h, size_t n) { store(sigmoid(load(beta + h, n)), beta + h, n); });
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
