#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/head_norm") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::head_norm)) {
      INFO(variant.name);
      Values x = {3, 4, 0, 2, -9};  // mean squares 12.5 and 2; the last value is a gap
      const Values weight = {1, 10};
      SerialQueue queue;
      variant.run({x.data(), weight.data(), 5, 2, 1, 2, 2, 0}, queue);
      CHECK(x[0] == doctest::Approx(3 / std::sqrt(12.5)));
      CHECK(x[1] == doctest::Approx(40 / std::sqrt(12.5)));
      CHECK(x[2] == 0);
      CHECK(x[3] == doctest::Approx(20 / std::sqrt(2.0)));
      CHECK(x[4] == -9);
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    struct Shape {
      int tokens, heads, dim, pad;
    };
    for (const Shape s : {Shape{1, 1, 1, 0}, {3, 2, 17, 5}, {9, 16, 64, 2048}, {2, 3, 260, 0}})
      for (const auto& variant : variants(&KernelTable::head_norm)) {
        INFO(variant.name, " ", s.tokens, " x ", s.heads, " x ", s.dim);
        Random random(uint64_t(s.dim));
        const int64_t stride = s.heads * s.dim + s.pad;
        const Values x = random.normals(size_t(s.tokens * stride)), weight = random.normals(size_t(s.dim));
        const auto run = [&](void (*kernel)(const HeadNormArgs&, Queue&)) {
          Values y = x;
          BackwardQueue queue;
          kernel({y.data(), weight.data(), stride, s.dim, s.tokens, s.heads, s.dim, 1e-5f}, queue);
          return y;
        };
        CHECK(relative_error(run(variant.run), run(ref::head_norm)) < 1e-6);
      }
  }
}
