// kernels/alpha_swiglu/alpha_swiglu_ref.cc: plain loops, f64 values, one thread.
#include "kernels/alpha_swiglu/alpha_swiglu.h"
#include "kernels/common/functions.h"

namespace dsa {

void ref::alpha_swiglu(const AlphaSwigluArgs& a, Queue&) {
  const double limit = a.limit;
  for (int64_t i = 0; i < a.rows * a.dim; ++i) {
    const double gate = a.x[2 * i], up = a.x[2 * i + 1];
    const double g = gate > limit ? limit : gate;
    const double u = up > limit ? limit : up < -limit ? -limit : up;
    a.y[i] = float(g * sigmoid(a.alpha * g) * (u + 1));
  }
}

}  // namespace dsa
