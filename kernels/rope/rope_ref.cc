// kernels/rope/rope_ref.cc: the turns of a token are computed once, in f64, for all of its heads; tokens go to the
// threads.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope/rope.h"

namespace dsa {

void ref::rope(const RopeArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int pairs = a.dim / 2;
    const int next = a.kind == RopeKind::pairs ? 2 : 1, partner = a.kind == RopeKind::pairs ? 1 : pairs;
    double cosine[kRopeDimMax / 2], sine[kRopeDimMax / 2];
    for (int i = 0; i < pairs; ++i) {
      const float angle = float(a.positions[t]) * a.frequencies[i];
      cosine[i] = a.amplitude * std::cos(double(angle)), sine[i] = a.amplitude * std::sin(double(angle));
    }
    for (int h = 0; h < a.heads; ++h)
      for (int i = 0; i < pairs; ++i) {
        float* at = a.x + t * a.token_stride + h * a.head_stride + i * next;
        const double x = at[0], y = at[partner];
        at[0] = float(x * cosine[i] - y * sine[i]);
        at[partner] = float(x * sine[i] + y * cosine[i]);
      }
  });
}

void fill_rope_frequencies(float* frequencies, int dim, double theta, const Yarn& yarn) {
  const auto correction = [&](double turns) {
    return dim * std::log(yarn.original_context / (2 * std::numbers::pi * turns)) / (2 * std::log(theta));
  };
  double low = 0, high = 0;
  if (yarn.factor != 1) {
    low = correction(yarn.beta_fast), high = correction(yarn.beta_slow);
    if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, double(dim - 1));
    if (low == high) high += 0.001;
  }
  for (int i = 0; i < dim / 2; ++i) {
    const double f = std::pow(theta, -2.0 * i / dim);
    const double ramp = yarn.factor == 1 ? 0 : std::clamp((i - low) / (high - low), 0.0, 1.0);
    frequencies[i] = float(f * (1 - ramp) + f / yarn.factor * ramp);
  }
}

}  // namespace dsa
