#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/add") {
  TEST_CASE("sums, at every block border, into an operand as well") {
    for (const int count : {1, 3, 16383, 16384, 16385, 40000}) {
      Random random(1);
      Values a = random.normals(count), b = random.normals(count), y = poisoned(count + 1);
      BackwardQueue queue;
      plain_kernels().add({a.data(), b.data(), y.data(), count}, queue);
      for (int i = 0; i < count; ++i) REQUIRE(y[i] == a[i] + b[i]);
      CHECK(std::isnan(y[count]));
      plain_kernels().add({a.data(), b.data(), b.data(), count}, queue);
      CHECK(same_bits(b, part(y, 0, count)));
    }
  }
}
