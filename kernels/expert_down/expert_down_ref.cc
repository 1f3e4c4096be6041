// kernels/expert_down/expert_down_ref.cc: the operators one after the other.
#include <numeric>
#include <vector>

#include "kernels/expert_combine/expert_combine.h"
#include "kernels/expert_down/expert_down.h"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {

void ref::expert_down(const ExpertDownArgs& a, Queue& queue) {
  const int pairs = a.tokens * a.top_k;
  std::vector<float> x(size_t(pairs) * a.in_dim), expert(size_t(pairs) * a.out_dim),
      sum(size_t(a.tokens) * a.out_dim);
  ref::activation({a.gate, a.up, x.data(), pairs, a.in_dim, a.form}, queue);
  std::vector<Mxfp4LinearGroup> groups;
  for (int pair = 0; pair < pairs; ++pair) {
    const ExpertMatrix& m = a.downs[a.expert_ids[pair]];
    groups.push_back(
        {static_cast<const uint8_t*>(m.data), m.scales, pair, 1, &expert[size_t(pair) * a.out_dim]});
  }
  ref::mxfp4_linear(
      {x.data(), groups.data(), pairs, nullptr, a.in_dim, a.out_dim, pairs, a.in_dim, a.out_dim, a.route, 1},
      queue);
  std::vector<int32_t> rows(size_t(pairs), 0);
  std::iota(rows.begin(), rows.end(), 0);
  ref::expert_combine(
      {expert.data(), rows.data(), a.expert_weights, sum.data(), a.tokens, a.top_k, a.out_dim}, queue);
  for (size_t i = 0; i < sum.size(); ++i) {
    float y = sum[i];
    if (a.shared) y += a.shared[i];
    a.y[i] = a.addend ? a.addend[i] + y : y;
  }
}

}  // namespace dsa
