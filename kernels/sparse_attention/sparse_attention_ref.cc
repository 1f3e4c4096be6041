// kernels/sparse_attention/sparse_attention_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {

void ref::sparse_attention(const SparseAttentionArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    std::vector<CacheRow> rows;
    const int slots = a.selected ? a.top_k : a.visible[t];
    for (int slot = 0; slot < slots; ++slot) {
      const int32_t p = a.selected ? a.selected[t * a.top_k + slot] : slot;
      if (p >= 0) rows.push_back(a.latents.row(a.sequence_of[t], p));
    }

    for (int h = 0; h < a.heads; ++h) {
      const float* q_latent = a.q_latent + (t * a.heads + h) * a.latent_dim;
      const float* q_rope = a.q_rope + t * a.q_rope_token_stride + h * a.q_rope_head_stride;
      std::vector<double> weights;
      double largest = -INFINITY, total = 0;
      for (const CacheRow& row : rows) {
        double dot = 0;
        for (int d = 0; d < a.latent_dim; ++d) dot += double(q_latent[d]) * row[d];
        for (int d = 0; d < a.rope_dim; ++d) dot += double(q_rope[d]) * row[a.latent_dim + d];
        weights.push_back(a.scale * dot);
        largest = std::max(largest, weights.back());
      }
      for (double& weight : weights) total += weight = std::exp(weight - largest);

      float* o = a.o + (t * a.heads + h) * a.latent_dim;
      for (int d = 0; d < a.latent_dim; ++d) {
        double sum = 0;
        for (size_t i = 0; i < rows.size(); ++i) sum += weights[i] / total * rows[i][d];
        o[d] = float(sum);
      }
    }
  }
}

}  // namespace dsa
