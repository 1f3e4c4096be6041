// tests/support/experts.h: choices of experts and their plan, as the reference makes it.
#pragma once

#include <utility>

#include "tests/support/queues.h"
#include "tests/support/values.h"

namespace dsa::test {

using Ids = std::vector<int32_t>;

struct Plan {
  Ids offsets, pairs, rows;
};

inline Plan plan(const Ids& expert_ids, int experts, int top_k) {
  Plan p{Ids(experts + 1, -9), Ids(expert_ids.size(), -9), Ids(expert_ids.size(), -9)};
  BackwardQueue queue;
  plain_kernels().expert_plan({expert_ids.data(), p.offsets.data(), p.pairs.data(), p.rows.data(),
                               int(expert_ids.size()) / top_k, experts, top_k},
                              queue);
  return p;
}

// Which experts the tokens chose: (tokens, top_k) ids below `experts`, distinct for each token.
inline Ids choices(Random& random, int tokens, int experts, int top_k) {
  Ids ids;
  for (int t = 0; t < tokens; ++t) {
    Ids all(experts);
    for (int e = 0; e < experts; ++e) all[e] = e;
    for (int slot = 0; slot < top_k; ++slot) {
      std::swap(all[slot], all[random.integer(slot, experts - 1)]);
      ids.push_back(all[slot]);
    }
  }
  return ids;
}

}  // namespace dsa::test
