// kernels/activation/activation_simd.cc: blocks of values go to the threads.
#include "kernels/activation/activation.h"
#include "kernels/common/simd.h"

namespace dsa {

void DSA_ISA::activation(const ActivationArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 2048;  // values
  const int64_t count = a.rows * a.dim;
  const Vec beta = set(a.beta), beta_inverse = set(1 / a.beta);
  const Vec linear_beta = set(a.linear_beta), linear_beta_inverse = set(1 / a.linear_beta);
  queue.parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = block * kBlock + kBlock < count ? block * kBlock + kBlock : count;
    for_each_vector(block * kBlock, end, [&](int64_t i, size_t n) {
      const Vec gate = load(a.gate + i, n), up = load(a.up + i, n);
      const Vec capped_gate = mul(beta, tanh(mul(gate, beta_inverse)));
      const Vec capped_up = a.linear_beta == 0 ? up : mul(linear_beta, tanh(mul(up, linear_beta_inverse)));
      store(mul(mul(capped_gate, sigmoid(gate)), capped_up), a.y + i, n);
    });
  });
}

}  // namespace dsa
