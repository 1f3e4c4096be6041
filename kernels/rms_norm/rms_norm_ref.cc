// kernels/rms_norm/rms_norm_ref.cc: plain loops, f64 sums, one thread.
#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

namespace dsa {

void ref::rms_norm(const RmsNormArgs& a, Queue&) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* x = a.x + r * a.x_stride;
    float* y = a.y + r * a.y_stride;
    double squares = 0;
    for (int d = 0; d < a.dim; ++d) squares += double(x[d]) * x[d];
    const double scale = 1 / std::sqrt(squares / a.dim + a.eps);
    for (int d = 0; d < a.dim; ++d) y[d] = float(x[d] * scale * a.weight[d]);
  }
}

}  // namespace dsa
