// kernels/gated_norm/gated_norm_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/common/functions.h"
#include "kernels/gated_norm/gated_norm.h"

namespace dsa {

void ref::gated_norm(const GatedNormArgs& a, Queue&) {
  for (int64_t i = 0; i < a.rows * a.heads; ++i) {
    const float *x = a.x + i * a.dim, *gate = a.gate + i * a.dim;
    float* y = a.y + i * a.dim;
    double squares = 0;
    for (int d = 0; d < a.dim; ++d) squares += double(x[d]) * x[d];
    const double factor = 1 / std::sqrt(squares / a.dim + a.eps);
    for (int d = 0; d < a.dim; ++d) y[d] = float(x[d] * factor * a.weight[d] * sigmoid(gate[d]));
  }
}

}  // namespace dsa
