#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Routed {
  std::vector<int32_t> ids;
  Values weights;
};

Routed run(const Values& logits, const Values& bias, int experts, int top_k, bool renormalize = true,
           float scale = 1, int groups = 1, int top_groups = 1) {
  const int tokens = int(logits.size()) / experts;
  Routed routed{std::vector<int32_t>(size_t(tokens) * top_k, -7), poisoned(size_t(tokens) * top_k)};
  BackwardQueue queue;
  plain_kernels().router(
      {logits.data(), bias.empty() ? nullptr : bias.data(), routed.ids.data(), routed.weights.data(), tokens,
       experts, top_k, renormalize, scale, groups, top_groups},
      queue);
  return routed;
}

float logit(double s) { return float(std::log(s / (1 - s))); }

using Ids = std::vector<int32_t>;

}  // namespace

TEST_SUITE("kernels/router") {
  TEST_CASE("the values worked out by hand") {
    const Routed one = run({2, 0, -1, 1}, {0, 0.5f, 0.6f, -0.3f}, 4, 2);
    CHECK(one.ids == Ids{1, 0});
    CHECK(relative_error(one.weights, {0.362110f, 0.637890f}) < 2e-6);
    CHECK(relative_error(run({2, 0, -1, 1}, {0, 0.5f, 0.6f, -0.3f}, 4, 2, true, 2.446f).weights,
                         {0.885720f, 1.560280f}) < 2e-6);
    CHECK(relative_error(run({2, 0, -1, 1}, {0, 0.5f, 0.6f, -0.3f}, 4, 2, false, 2).weights, {1, 1.761594f}) <
          2e-6);
  }

  TEST_CASE("the bias chooses but does not weigh (MOE-02)") {
    const Routed routed = run({logit(0.9), logit(0.8), logit(0.1)}, {0, 0, 1}, 3, 2);
    CHECK(routed.ids == Ids{2, 0});
    CHECK(relative_error(routed.weights, {0.1f, 0.9f}) < 1e-6);
  }

  TEST_CASE("only experts of the groups with the best two are open (MOE-03)") {
    // Sums of the best two: 0.9 + 0.1, 0.6 + 0.6, 0.7 + 0.2. The best expert of all is in none of the open groups.
    const Values s = {0.9, 0.05, 0.1, 0.6, 0.6, 0.3, 0.7, 0.1, 0.2};
    Values logits;
    for (const float value : s) logits.push_back(logit(value));
    CHECK(run(logits, {}, 9, 2, true, 1, 3, 1).ids == Ids{3, 4});
    CHECK(run(logits, {}, 9, 2, true, 1, 3, 2).ids == Ids{0, 3});
    CHECK(run(logits, {}, 9, 2, true, 1, 3, 3).ids == Ids{0, 6});
    // The bias chooses groups too, and negative sums are no reason to open another.
    const Values bias = {-2, -2, -2, -2, -2, -2, 0, 0, 0};
    const Routed biased = run(logits, bias, 9, 3, false, 1, 3, 1);
    CHECK(biased.ids == Ids{6, 8, 7});
    CHECK(relative_error(biased.weights, {0.7f, 0.2f, 0.1f}) < 1e-6);
    CHECK(run(logits, Values(9, -5), 9, 3, true, 1, 3, 1).ids == Ids{3, 4, 5});
    // Groups of one expert, a tie of groups, and NaN.
    CHECK(run(logits, {}, 9, 2, true, 1, 9, 2).ids == Ids{0, 6});
    CHECK(run(Values(6, 0.5f), {}, 6, 2, true, 1, 3, 2).ids == Ids{0, 1});
    CHECK(run({NAN, 9, 1, 1}, {}, 4, 1, true, 1, 2, 1).ids == Ids{2});
    for (float weight : run(Values(4, NAN), {}, 4, 2, true, 1, 2, 1).weights) CHECK(std::isnan(weight));
  }

  TEST_CASE("degenerate rows: distinct ids in range, finite experts first, ties to the lowest (MOE-04)") {
    const float inf = INFINITY;
    CHECK(run(Values(6, NAN), {}, 6, 3).ids == Ids{0, 1, 2});
    CHECK(run(Values(6, -inf), {}, 6, 3).ids == Ids{0, 1, 2});
    CHECK(run(Values(6, 1.5f), {}, 6, 3).ids == Ids{0, 1, 2});
    for (float weight : run(Values(6, NAN), {}, 6, 3).weights) CHECK(std::isnan(weight));
    for (float weight : run(Values(6, -inf), {}, 6, 3).weights) CHECK(std::isnan(weight));
    for (float weight : run(Values(6, 1.5f), {}, 6, 3).weights) CHECK(weight == doctest::Approx(1 / 3.0));

    const Routed partly = run({NAN, -4, NAN, 2, NAN, -9}, {}, 6, 3);
    CHECK(partly.ids == Ids{3, 1, 5});
    for (float weight : partly.weights) CHECK(std::isfinite(weight));
    const Routed short_of_one = run({NAN, NAN, NAN, 2, NAN, -9}, {}, 6, 3);
    CHECK(short_of_one.ids == Ids{3, 5, 0});
    for (float weight : short_of_one.weights) CHECK(std::isnan(weight));
    const Routed with_inf = run({NAN, -inf, 1, -inf}, {}, 4, 2);  // NaN never, while others are left
    CHECK(with_inf.ids == Ids{2, 1});
    for (float weight : with_inf.weights) CHECK(std::isnan(weight));
  }

  TEST_CASE("winners at 256 and above, one at 895 (MOE-05)") {
    Random random(1);
    Values logits(896);
    for (float& value : logits) value = random.uniform(-3, -1);
    std::set<int32_t> winners = {895, 256};
    while (winners.size() < 16) winners.insert(int32_t(random.integer(256, 894)));
    for (int32_t e : winners) logits[e] = random.uniform(1, 2);
    const Routed routed = run(logits, {}, 896, 16);
    CHECK(std::set<int32_t>(routed.ids.begin(), routed.ids.end()) == winners);
  }

  TEST_CASE("logits that bf16 cannot tell apart keep their order (MOE-06)") {
    CHECK(run({0, 8.000f, 8.001f, 1}, {}, 4, 1).ids == Ids{2});
    CHECK(run({0, 8.001f, 8.000f, 1}, {}, 4, 1).ids == Ids{1});
  }

  TEST_CASE("agrees with a sort, best first, for many shapes and ties") {
    for (const auto& [experts, top_k] :
         {std::pair{1, 1}, {2, 2}, {5, 3}, {16, 4}, {256, 8}, {896, 16}, {40, 40}})
      for (const bool rounded : {false, true}) {
        INFO("experts ", experts);
        Random random(3);
        const int tokens = 9;
        Values logits = random.normals(size_t(tokens) * experts, 2), bias = random.normals(experts, 0.1f);
        if (rounded)
          for (Values* values : {&logits, &bias})
            for (float& value : *values) value = std::round(value);
        const Routed routed = run(logits, bias, experts, top_k, true, 2.5f);
        for (int t = 0; t < tokens; ++t) {
          Values s(experts);
          for (int e = 0; e < experts; ++e)
            s[e] = float(1 / (1 + std::exp(-double(logits[t * experts + e]))));
          Ids ids(experts);
          std::iota(ids.begin(), ids.end(), 0);
          std::stable_sort(ids.begin(), ids.end(),
                           [&](int32_t a, int32_t b) { return s[a] + bias[a] > s[b] + bias[b]; });
          ids.resize(top_k);
          CHECK(Ids(routed.ids.begin() + t * top_k, routed.ids.begin() + (t + 1) * top_k) == ids);
          double sum = 0;
          for (int32_t e : ids) sum += s[e];
          for (int slot = 0; slot < top_k; ++slot)
            CHECK(routed.weights[t * top_k + slot] ==
                  doctest::Approx(2.5 * s[ids[slot]] / sum).epsilon(1e-6));
        }
      }
  }
}
