// kernels/vision_attention/vision_attention_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/vision_attention/vision_attention.h"

namespace dsa {
namespace {

void attend(const VisionAttentionArgs& a, const VisionAttentionRun& run, int64_t t, int h) {
  const auto key = [&](const float* rows, int p) {
    return rows + (run.k_begin + p) * a.kv_stride + h * a.dim;
  };
  const float* q = a.q + t * a.q_stride + h * a.dim;
  std::vector<double> weights;
  double largest = -INFINITY, total = 0;
  for (int p = 0; p < run.keys; ++p) {
    double dot = 0;
    for (int d = 0; d < a.dim; ++d) dot += double(q[d]) * key(a.k, p)[d];
    weights.push_back(a.scale * dot);
    largest = std::max(largest, weights.back());
  }
  for (double& weight : weights) total += weight = std::exp(weight - largest);

  std::vector<double> sums(size_t(a.dim), 0.0);
  for (int p = 0; p < run.keys; ++p)
    for (int d = 0; d < a.dim; ++d) sums[size_t(d)] += weights[size_t(p)] / total * key(a.v, p)[d];
  for (int d = 0; d < a.dim; ++d) a.o[t * a.o_stride + h * a.dim + d] = float(sums[size_t(d)]);
}

}  // namespace

void ref::vision_attention(const VisionAttentionArgs& a, Queue&) {
  for (int i = 0; i < a.num_runs; ++i)
    for (int t = 0; t < a.runs[i].queries; ++t)
      for (int h = 0; h < a.heads; ++h) attend(a, a.runs[i], a.runs[i].q_begin + t, h);
}

}  // namespace dsa
