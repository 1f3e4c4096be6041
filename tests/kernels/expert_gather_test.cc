#include <doctest/doctest.h>

#include <array>

#include "tests/support/experts.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/expert_gather") {
  TEST_CASE("each row is the row of its token, for one token, one expert and many") {
    for (const auto& [tokens, experts, top_k, dim] :
         {std::array{1, 1, 1, 1}, {1, 9, 4, 7}, {30, 1, 1, 33}, {13, 50, 6, 64}}) {
      Random random(1);
      const Plan p = plan(choices(random, tokens, experts, top_k), experts, top_k);
      const Values x = random.normals(size_t(tokens) * dim);
      Values y = poisoned(p.pairs.size() * dim);
      BackwardQueue queue;
      plain_kernels().expert_gather({x.data(), p.pairs.data(), y.data(), tokens, top_k, dim}, queue);
      for (size_t row = 0; row < p.pairs.size(); ++row)
        CHECK(same_bits(part(y, row, dim), part(x, p.pairs[row] / top_k, dim)));
    }
  }
}
