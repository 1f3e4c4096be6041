// kernels/activation/activation_simd.cc: blocks of values go to the threads.
#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/common/simd.h"

namespace dsa {
namespace DSA_ISA {

// y = f(gate, up), vector by vector.
template <class F>
static void for_each_pair(const ActivationArgs& a, Queue& queue, const F& f) {
  constexpr int64_t kBlock = 2048;  // values
  const int64_t count = a.rows * a.dim;
  queue.parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = block * kBlock + kBlock < count ? block * kBlock + kBlock : count;
    for_each_vector(block * kBlock, end, [&](int64_t i, size_t n) {
      store(f(load(a.gate + i, n), load(a.up + i, n)), a.y + i, n);
    });
  });
}

static void situ(const ActivationArgs& a, Queue& queue) {
  const Vec beta = set(a.form.beta), beta_inverse = set(1 / a.form.beta);
  const Vec linear_beta = set(a.form.linear_beta), linear_beta_inverse = set(1 / a.form.linear_beta);
  for_each_pair(a, queue, [&](Vec gate, Vec up) {
    const Vec capped_gate = mul(beta, tanh(mul(gate, beta_inverse)));
    const Vec capped_up = a.form.linear_beta == 0 ? up : mul(linear_beta, tanh(mul(up, linear_beta_inverse)));
    return mul(mul(capped_gate, sigmoid(gate)), capped_up);
  });
}

static void swiglu(const ActivationArgs& a, Queue& queue) {
  const Vec high = set(a.form.limit == 0 ? INFINITY : a.form.limit), low = hn::Neg(high);
  for_each_pair(a, queue, [&](Vec gate, Vec up) {
    gate = hn::IfThenElse(hn::Gt(gate, high), high, gate);  // comparisons that keep NaN
    up = hn::IfThenElse(hn::Gt(up, high), high, hn::IfThenElse(hn::Lt(up, low), low, up));
    return mul(mul(gate, sigmoid(gate)), up);
  });
}

void activation(const ActivationArgs& a, Queue& queue) {
  a.form.kind == ActivationKind::situ ? situ(a, queue) : swiglu(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
