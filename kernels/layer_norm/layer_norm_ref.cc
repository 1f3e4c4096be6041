// kernels/layer_norm/layer_norm_ref.cc: plain loops, f64 sums; rows go to the threads.
#include <cmath>

#include "kernels/layer_norm/layer_norm.h"

namespace dsa {

void ref::layer_norm(const LayerNormArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    const float* x = a.x + r * a.x_stride;
    float* y = a.y + r * a.y_stride;
    double sum = 0, squares = 0;
    for (int d = 0; d < a.dim; ++d) sum += x[d];
    const double mean = sum / a.dim;
    for (int d = 0; d < a.dim; ++d) squares += (x[d] - mean) * (x[d] - mean);
    const double factor = 1 / std::sqrt(squares / a.dim + a.eps);
    for (int d = 0; d < a.dim; ++d)
      y[d] = float((x[d] - mean) * factor * a.weight[d] + (a.bias ? a.bias[d] : 0));
  });
}

}  // namespace dsa
