// kernels/head_norm/head_norm_ref.cc: plain loops, f64 sums, one thread.
#include <cmath>

#include "kernels/head_norm/head_norm.h"

namespace dsa {

void ref::head_norm(const HeadNormArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h) {
      float* x = a.x + t * a.token_stride + h * a.head_stride;
      double squares = 0;
      for (int d = 0; d < a.dim; ++d) squares += double(x[d]) * x[d];
      const double scale = 1 / std::sqrt(squares / a.dim + a.eps);
      for (int d = 0; d < a.dim; ++d) x[d] = float(x[d] * scale * a.weight[d]);
    }
}

}  // namespace dsa
