#include <doctest/doctest.h>

#include <array>

#include "tests/support/experts.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/expert_plan") {
  TEST_CASE("the plan worked out by hand") {
    const Plan p = plan({2, 0, 0, 2, 3, 1}, 5, 2);
    CHECK(p.offsets == Ids{0, 2, 3, 5, 6, 6});  // the last expert has no rows
    CHECK(p.pairs == Ids{1, 2, 5, 0, 3, 4});
    CHECK(p.rows == Ids{3, 0, 1, 4, 5, 2});
    CHECK(plan({}, 3, 2).offsets == Ids{0, 0, 0, 0});
  }

  TEST_CASE("pairs are sorted by expert, in rising order, and rows is the way back") {
    for (const auto& [tokens, experts, top_k] :
         {std::array{1, 1, 1}, {1, 896, 16}, {7, 5, 3}, {100, 300, 8}}) {
      Random random(1);
      const Ids ids = choices(random, tokens, experts, top_k);
      const Plan p = plan(ids, experts, top_k);
      CHECK(p.offsets.front() == 0);
      CHECK(p.offsets.back() == tokens * top_k);
      for (int e = 0; e < experts; ++e)
        for (int row = p.offsets[e]; row < p.offsets[e + 1]; ++row) {
          CHECK(ids[p.pairs[row]] == e);
          CHECK(p.rows[p.pairs[row]] == row);
          if (row > p.offsets[e]) CHECK(p.pairs[row - 1] < p.pairs[row]);
        }
    }
  }
}
