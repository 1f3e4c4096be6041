// kernels/attn_residual/attn_residual_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>

#include "kernels/attn_residual/attn_residual.h"

namespace dsa {

void ref::attn_residual(const AttnResidualArgs& a, Queue&) {
  for (int t = 0; t < a.tokens; ++t) {
    const size_t row = size_t(t) * a.dim;
    double score[AttnResidualArgs::kMaxSources];
    double largest = -INFINITY;
    for (int j = 0; j < a.num_sources; ++j) {
      double squares = 0, dot = 0;
      for (int d = 0; d < a.dim; ++d) {
        const double x = a.sources[j][row + d];
        squares += x * x;
        dot += x * a.query[d];
      }
      score[j] = dot / std::sqrt(squares / a.dim + a.eps);
      largest = std::max(largest, score[j]);
    }

    double total = 0;
    for (int j = 0; j < a.num_sources; ++j) total += score[j] = std::exp(score[j] - largest);
    for (int d = 0; d < a.dim; ++d) {
      double y = 0;
      for (int j = 0; j < a.num_sources; ++j) y += score[j] / total * a.sources[j][row + d];
      a.y[row + d] = float(y);
    }
  }
}

}  // namespace dsa
