#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/gated_norm") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::gated_norm)) {
      INFO(variant.name);
      const Values x = {3, 4}, gate = {0, std::log(3.f)}, weight = {2, -1};
      Values y = poisoned(2);
      SerialQueue queue;
      variant.run({x.data(), gate.data(), weight.data(), y.data(), 1, 1, 2, 3.5f}, queue);
      CHECK(y[0] == doctest::Approx(3.0 / 4 * 2 * 0.5));  // mean of squares 12.5, plus 3.5, is 16
      CHECK(y[1] == doctest::Approx(4.0 / 4 * -1 * 0.75));
    }
  }

  TEST_CASE("every variant agrees with the reference, in place, on any thread") {
    for (const auto& [rows, heads, dim] :
         {std::array{1, 1, 1}, {3, 7, 20}, {2, 96, 128}, {5, 3, 64}, {17, 2, 33}})
      for (const float scale : {1.f, 1e-3f, 1e4f})
        for (const auto& variant : variants(&KernelTable::gated_norm)) {
          INFO(variant.name, " heads ", heads, " dim ", dim);
          Random random(1);
          const size_t count = size_t(rows) * heads * dim;
          Values x = random.normals(count, scale), y = poisoned(count), want = y;
          const Values gate = random.normals(count, 3), weight = random.normals(dim);
          SerialQueue serial;
          BackwardQueue backward;
          variant.run({x.data(), gate.data(), weight.data(), y.data(), rows, heads, dim, 1e-5f}, serial);
          ref::gated_norm({x.data(), gate.data(), weight.data(), want.data(), rows, heads, dim, 1e-5f},
                          serial);
          CHECK(relative_error(y, want) < 1e-6);
          variant.run({x.data(), gate.data(), weight.data(), x.data(), rows, heads, dim, 1e-5f}, backward);
          CHECK(same_bits(x, y));
        }
  }
}
