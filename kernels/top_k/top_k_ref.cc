// kernels/top_k/top_k_ref.cc: sorts all positions by score, one thread.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/top_k/top_k.h"

namespace dsa {

void ref::top_k(const TopKArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* scores = a.scores + t * a.scores_stride;
    int32_t* selected = a.selected + t * a.top_k;
    std::vector<int32_t> positions(size_t(a.visible[t]));
    std::iota(positions.begin(), positions.end(), 0);

    // Stable, so that the lower position wins a tie.
    std::stable_sort(positions.begin(), positions.end(), [&](int32_t left, int32_t right) {
      if (std::isnan(scores[right])) return !std::isnan(scores[left]);
      return scores[left] > scores[right];  // false if left is NaN
    });
    positions.resize(std::min(positions.size(), size_t(a.top_k)));
    std::sort(positions.begin(), positions.end());

    std::fill_n(selected, a.top_k, -1);
    std::copy(positions.begin(), positions.end(), selected);
  }
}

}  // namespace dsa
