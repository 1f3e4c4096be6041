// kernels/sample/sample_ref.cc: all tokens in order, cut twice; one thread.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/sample/sample.h"
#include "kernels/sample/sample_weight.h"

namespace dsa {
namespace {

__extension__ using uint128 = unsigned __int128;

SampledToken sample_row(const float* logits, int vocab, const SampleRow& asked) {
  for (int t = 0; t < vocab; ++t)
    if (!(logits[t] <= std::numeric_limits<float>::max())) return {-1, t, logits[t]};

  std::vector<int32_t> kept(static_cast<size_t>(vocab));
  std::iota(kept.begin(), kept.end(), 0);
  std::stable_sort(kept.begin(), kept.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const float best = logits[kept[0]];
  if (std::isinf(best)) return {-1, -1, 0};
  if (asked.temperature == 0) return {kept[0], -1, 0};

  const auto weight = [&](int32_t t) { return sample_weight(logits[t], best, sample_scale(1)); };
  if (asked.top_k > 0 && asked.top_k < kept.size()) kept.resize(asked.top_k);
  if (asked.top_p < 1) {
    uint64_t total = 0, sum = 0;
    for (const int32_t t : kept) total += weight(t);
    size_t n = 0;
    while (sum < sample_target(asked.top_p, total)) sum += weight(kept[n++]);
    kept.resize(n);
  }
  std::erase_if(kept, [&](int32_t t) { return weight(t) < sample_weight_min(asked.min_p); });

  std::sort(kept.begin(), kept.end());
  const auto drawn = [&](int32_t t) {
    return sample_weight(logits[t], best, sample_scale(asked.temperature));
  };
  uint64_t total = 0, sum = 0;
  for (const int32_t t : kept) total += drawn(t);
  const auto place = uint64_t(uint128(asked.draw) * total >> 64);
  for (const int32_t t : kept)
    if ((sum += drawn(t)) > place) return {t, -1, 0};
  return {-1, -1, 0};  // not reached: the best token is kept and has a weight
}

}  // namespace

void ref::sample(const SampleArgs& a, Queue&) {
  for (int r = 0; r < a.rows; ++r) {
    a.sampled[r] = sample_row(a.logits + r * a.logits_stride, a.vocab, a.asked[r]);
    a.tokens[r] = std::max(a.sampled[r].token, 0);
  }
}

}  // namespace dsa
