// kernels/index_scores/index_scores_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>

#include "kernels/index_scores/index_scores.h"

namespace dsa {

void ref::index_scores(const IndexScoresArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    float* scores = a.scores + t * a.scores_stride;
    for (int p = 0; p < a.context; ++p) {
      if (p >= a.visible[t]) {
        scores[p] = -INFINITY;
        continue;
      }
      const CacheRow k = a.k.row(a.sequence_of[t], p);
      double score = 0;
      for (int h = 0; h < a.heads; ++h) {
        const float* q = a.q_row(t, h);
        double dot = 0;
        for (int d = 0; d < a.dim; ++d) dot += double(q[d]) * k[d];
        score += a.head_weights[t * a.heads + h] * std::max(dot, 0.0);
      }
      scores[p] = float(score);
    }
  }
}

}  // namespace dsa
