#include "engine/scheduler.h"

#include <doctest/doctest.h>

#include <vector>

using namespace dsa;

namespace {

std::vector<int> share(std::vector<StepShare> runs, const StepLimits& limits) {
  share_step(runs, limits);
  std::vector<int> counts;
  for (const StepShare& run : runs) counts.push_back(run.count);
  return counts;
}

StepShare normal(int remaining) { return {Priority::normal, remaining, 0}; }

}  // namespace

TEST_SUITE("engine/scheduler") {
  const StepLimits limits{.tokens = 100, .sequences = 4, .chunk = 40};

  TEST_CASE("a prompt alone takes the whole step, with others decoding a chunk") {
    CHECK(share({normal(500)}, limits) == std::vector<int>{100});
    CHECK(share({normal(30)}, limits) == std::vector<int>{30});
    CHECK(share({normal(1), normal(500)}, limits) == std::vector<int>{1, 40});
    CHECK(share({normal(500), normal(1), normal(1)}, limits) == std::vector<int>{40, 1, 1});
  }

  TEST_CASE("prompts share evenly; a short one leaves its rest to the others") {
    CHECK(share({normal(500), normal(500)}, limits) == std::vector<int>{50, 50});
    CHECK(share({normal(10), normal(500)}, limits) == std::vector<int>{10, 90});
    CHECK(share({normal(500), normal(500), normal(1)}, limits) == std::vector<int>{20, 20, 1});
  }

  TEST_CASE("interactive prompts come first where places are short") {
    const StepLimits one{.tokens = 100, .sequences = 1, .chunk = 40};
    CHECK(share({normal(9), {Priority::interactive, 9, 0}}, one) == std::vector<int>{0, 9});
  }

  TEST_CASE("background runs get nothing while others have work") {
    CHECK(share({{Priority::background, 1, 0}, normal(1)}, limits) == std::vector<int>{0, 1});
    CHECK(share({{Priority::background, 1, 0}, normal(0)}, limits) == std::vector<int>{1, 0});
    CHECK(share({{Priority::background, 300, 0}}, limits) == std::vector<int>{100});
  }

  TEST_CASE("limits hold, and somebody always gets something") {
    for (int n = 1; n < 12; ++n)
      for (int decodes = 0; decodes <= n; ++decodes) {
        std::vector<StepShare> runs;
        for (int i = 0; i < n; ++i) runs.push_back(normal(i < decodes ? 1 : 7 + i));
        const StepLimits tight{.tokens = 5, .sequences = 3, .chunk = 2};
        int tokens = 0, sequences = 0;
        for (const int count : share(runs, tight)) tokens += count, sequences += count > 0;
        CHECK(tokens > 0);
        CHECK(tokens <= 5);
        CHECK(sequences <= 3);
      }
  }
}
