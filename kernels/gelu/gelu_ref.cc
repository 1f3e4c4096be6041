// kernels/gelu/gelu_ref.cc: plain loops, f64 values, one thread.
#include <cmath>

#include "kernels/gelu/gelu.h"

namespace dsa {

void ref::gelu(const GeluArgs& a, Queue&) {
  const double root_half = std::sqrt(0.5), root_2_pi = std::sqrt(2 / std::acos(-1.0));
  for (int64_t i = 0; i < a.count; ++i) {
    const double x = a.x[i];
    // 1 + erf and 1 + tanh, written so that nothing cancels where they are near zero.
    const double twice = a.kind == GeluKind::exact
                             ? std::erfc(-x * root_half)
                             : 2 / (1 + std::exp(-2 * root_2_pi * (x + 0.044715 * x * x * x)));
    a.y[i] = float(x / 2 * twice);
  }
}

}  // namespace dsa
