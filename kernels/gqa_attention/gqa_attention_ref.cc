// kernels/gqa_attention/gqa_attention_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gqa_attention/gqa_attention.h"

namespace dsa {

void ref::gqa_attention(const GqaAttentionArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h) {
      const int64_t at = int64_t(h / a.group()) * a.dim;
      const float* q = a.q + (t * a.heads + h) * a.dim;
      double largest = a.sinks ? double(a.sinks[h]) : -INFINITY;
      std::vector<double> weights;
      for (int p = a.first(t); p < a.visible[t]; ++p) {
        const CacheRow k = a.k.row(a.sequence_of[t], p).from(at);
        double dot = 0;
        for (int d = 0; d < a.dim; ++d) dot += double(q[d]) * k[d];
        weights.push_back(a.scale * dot);
        largest = std::max(largest, weights.back());
      }
      double total = a.sinks ? std::exp(a.sinks[h] - largest) : 0;
      for (double& weight : weights) total += weight = std::exp(weight - largest);

      std::vector<double> sums(size_t(a.dim), 0.0);
      for (size_t i = 0; i < weights.size(); ++i) {
        const CacheRow v = a.v.row(a.sequence_of[t], a.first(t) + int64_t(i)).from(at);
        for (int d = 0; d < a.dim; ++d) sums[size_t(d)] += weights[i] / total * v[d];
      }
      std::transform(sums.begin(), sums.end(), a.o + (t * a.heads + h) * a.dim,
                     [](double sum) { return float(sum); });
    }
}

}  // namespace dsa
