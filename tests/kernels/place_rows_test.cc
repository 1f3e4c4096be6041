#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/place_rows") {
  TEST_CASE("runs take their places, the later one wins, all else stays") {
    const Values a = {10, 11, 20, 21}, b = {30, 31};
    Values y = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<PlacedRun> runs = {{a.data(), 1, 2}, {b.data(), 2, 1}};
    BackwardQueue queue;
    plain_kernels().place_rows({runs.data(), y.data(), 2, 2}, queue);
    CHECK(y == Values{0, 1, 10, 11, 30, 31, 6, 7});
    plain_kernels().place_rows({nullptr, y.data(), 0, 2}, queue);
    CHECK(y == Values{0, 1, 10, 11, 30, 31, 6, 7});
  }
}
