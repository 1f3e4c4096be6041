#include <doctest/doctest.h>

#include "tests/support/experts.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/expert_combine") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::expert_combine)) {
      INFO(variant.name);
      const Values x = {1, 10, 2, 20, 3, 30, 4, 40}, weights = {0.5f, 2, 1, -1};
      const Ids rows = {3, 0, 1, 2};
      Values y = poisoned(4);
      SerialQueue queue;
      variant.run({x.data(), rows.data(), weights.data(), y.data(), 2, 2, 2}, queue);
      CHECK(y == Values{4, 40, -1, -10});
    }
  }

  TEST_CASE("gather, experts, combine equal a dense loop over experts (MOE-07)") {
    struct Shape {
      int tokens, experts, top_k, dim;
      bool one_expert;
    };
    for (const Shape& s : {Shape{1, 4, 1, 5, false},
                           {1, 896, 16, 64, false},
                           {6, 6, 1, 33, true},
                           {9, 8, 3, 1025, false},
                           {40, 5, 5, 48, false},
                           {3, 20, 2, 2100, false}})
      for (const auto& variant : implementations(&KernelTable::expert_combine)) {
        INFO(variant.name, " tokens ", s.tokens, " dim ", s.dim);
        Random random(5);
        Ids ids = choices(random, s.tokens, s.experts, s.top_k);
        if (s.one_expert) std::fill(ids.begin(), ids.end(), 3);
        const Plan p = plan(ids, s.experts, s.top_k);
        const Values x = random.normals(size_t(s.tokens) * s.dim);
        Values factors(s.experts), weights(ids.size());
        for (Values* values : {&factors, &weights})
          for (float& value : *values) value = random.uniform(0.1f, 1);

        Values gathered = poisoned(ids.size() * s.dim), y = poisoned(x.size()), want(x.size());
        BackwardQueue queue;
        plain_kernels().expert_gather({x.data(), p.pairs.data(), gathered.data(), s.tokens, s.top_k, s.dim},
                                      queue);
        // An expert here is a factor.
        for (int e = 0; e < s.experts; ++e)
          for (size_t i = size_t(p.offsets[e]) * s.dim; i < size_t(p.offsets[e + 1]) * s.dim; ++i)
            gathered[i] *= factors[e];
        variant.run({gathered.data(), p.rows.data(), weights.data(), y.data(), s.tokens, s.top_k, s.dim},
                    queue);

        for (int t = 0; t < s.tokens; ++t)
          for (int d = 0; d < s.dim; ++d) {
            double sum = 0;
            for (int slot = 0; slot < s.top_k; ++slot)
              sum +=
                  double(weights[t * s.top_k + slot]) * factors[ids[t * s.top_k + slot]] * x[t * s.dim + d];
            want[t * s.dim + d] = float(sum);
          }
        CHECK(relative_error(y, want) < 1e-6);
      }
  }
}
