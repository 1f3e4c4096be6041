#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Choice {
  std::vector<int32_t> ids;
  Values weights;
};

Choice route(const Values& logits, int experts, int top_k) {
  const int tokens = int(logits.size()) / experts;
  Choice c{std::vector<int32_t>(size_t(tokens) * top_k, -9), poisoned(size_t(tokens) * top_k)};
  BackwardQueue queue;
  plain_kernels().softmax_router({logits.data(), c.ids.data(), c.weights.data(), tokens, experts, top_k},
                                 queue);
  return c;
}

}  // namespace

TEST_SUITE("kernels/softmax_router") {
  TEST_CASE("the softmax is over the chosen logits alone; the lower id wins a tie") {
    const Choice c = route({0, std::log(3.f), 0, -1, 0}, 5, 2);
    CHECK(c.ids == std::vector<int32_t>{1, 0});
    CHECK(c.weights[0] == doctest::Approx(0.75));
    CHECK(c.weights[1] == doctest::Approx(0.25));
  }

  TEST_CASE("the chosen are the largest, in order, and weigh 1 together") {
    Random random(4);
    for (const int experts : {1, 4, 32, 128})
      for (int top_k = 1; top_k <= std::min(experts, 8); ++top_k) {
        const Values logits = random.normals(size_t(experts) * 9, 30);
        const Choice c = route(logits, experts, top_k);
        for (int t = 0; t < 9; ++t) {
          std::vector<int32_t> order(static_cast<size_t>(experts));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](int a, int b) { return logits[t * experts + a] > logits[t * experts + b]; });
          double total = 0;
          for (int i = 0; i < top_k; ++i) {
            CHECK(c.ids[t * top_k + i] == order[i]);
            total += c.weights[t * top_k + i];
          }
          CHECK(total == doctest::Approx(1));
        }
      }
  }

  TEST_CASE("NaN is chosen last and reaches the weights; logits beyond the range of exp are fine") {
    const Choice nan = route({NAN, 1, NAN, NAN}, 4, 2);
    CHECK(nan.ids == std::vector<int32_t>{1, 0});
    CHECK(std::isnan(nan.weights[0]));
    const Choice spared = route({NAN, 1, 1, NAN}, 4, 2);
    CHECK(spared.ids == std::vector<int32_t>{1, 2});
    CHECK(spared.weights == Values{0.5f, 0.5f});
    CHECK(route({1000, -1000, 0}, 3, 2).weights == Values{1, 0});
  }
}
