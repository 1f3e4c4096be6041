// kernels/attn_residual/attn_residual_simd.cc: tokens go to the threads; of a few tokens, their sources and
// then blocks of their channels.
#include <cmath>

#include "kernels/attn_residual/attn_residual.h"
#include "kernels/common/simd.h"

namespace dsa {
namespace DSA_ISA {
namespace {

float score(const AttnResidualArgs& a, int64_t t, int64_t j) {
  const float* x = a.sources[j] + t * a.dim;
  return dot(x, a.query, a.dim) / std::sqrt(dot(x, x, a.dim) / float(a.dim) + a.eps);
}

// Scores become probabilities.
void softmax(float* scores, int n) {
  float largest = scores[0], total = 0;
  for (int j = 1; j < n; ++j) largest = scores[j] > largest ? scores[j] : largest;
  for (int j = 0; j < n; ++j) total += scores[j] = std::exp(scores[j] - largest);
  for (int j = 0; j < n; ++j) scores[j] /= total;
}

void mix(const AttnResidualArgs& a, int64_t t, int64_t begin, int64_t end, const float* weights) {
  for_each_vector(begin, end, [&](int64_t d, size_t n) {
    Vec y = zero();
    for (int j = 0; j < a.num_sources; ++j)
      y = fma(set(weights[j]), load(a.sources[j] + t * a.dim + d, n), y);
    store(y, a.y + t * a.dim + d, n);
  });
}

}  // namespace

void attn_residual(const AttnResidualArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 1024;          // channels
  constexpr int64_t kWorthSharing = 16384;  // values of one token
  if (a.tokens >= queue.threads() || int64_t(a.num_sources) * a.dim < kWorthSharing) {
    queue.parallel_for(a.tokens, [&](int64_t t) {
      float weights[AttnResidualArgs::kMaxSources];
      for (int j = 0; j < a.num_sources; ++j) weights[j] = score(a, t, j);
      softmax(weights, a.num_sources);
      mix(a, t, 0, a.dim, weights);
    });
    return;
  }
  for (int64_t t = 0; t < a.tokens; ++t) {
    float weights[AttnResidualArgs::kMaxSources];
    queue.parallel_for(a.num_sources, [&](int64_t j) { weights[j] = score(a, t, j); });
    softmax(weights, a.num_sources);
    queue.parallel_for((a.dim + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t end = block * kBlock + kBlock < a.dim ? block * kBlock + kBlock : a.dim;
      mix(a, t, block * kBlock, end, weights);
    });
  }
}

}  // namespace DSA_ISA
}  // namespace dsa
