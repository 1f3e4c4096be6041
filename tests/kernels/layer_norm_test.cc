#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/layer_norm") {
  TEST_CASE("the value worked out by hand, with and without bias, rows apart") {
    // Mean 2, variance 4 (of -2, 2, -2, 2), plus eps 5, is 9.
    const Values x = {0, 4, 0, 4, NAN, 10, 14, 10, 14, NAN}, weight = {3, 3, 6, 0}, bias = {1, 0, 0, -1};
    SerialQueue queue;
    Values y = poisoned(11);
    plain_kernels().layer_norm({x.data(), weight.data(), bias.data(), y.data(), 5, 6, 2, 4, 5}, queue);
    const Values want = {-1, 2, -4, -1, NAN, NAN, -1, 2, -4, -1, NAN};
    CHECK(relative_error(y, want) < 1e-6);
    y = poisoned(4);
    plain_kernels().layer_norm({x.data(), weight.data(), nullptr, y.data(), 5, 6, 1, 4, 5}, queue);
    CHECK(relative_error(y, {-2, 2, -4, 0}) < 1e-6);
  }

  TEST_CASE("a large mean does not swallow the variance; y may be x") {
    Random random(1);
    const int dim = 1152;
    Values x = random.normals(3 * dim), ones(dim, 1.f), y = poisoned(3 * dim);
    for (float& value : x) value = std::round(value * 64) / 64 + 4096;
    BackwardQueue queue;
    plain_kernels().layer_norm({x.data(), ones.data(), nullptr, y.data(), dim, dim, 3, dim, 1e-6f}, queue);
    for (int r = 0; r < 3; ++r) {
      double mean = 0, squares = 0;
      for (int d = 0; d < dim; ++d) mean += y[r * dim + d] / double(dim);
      for (int d = 0; d < dim; ++d) squares += std::pow(y[r * dim + d] - mean, 2) / dim;
      CHECK(std::abs(mean) < 1e-6);
      CHECK(squares == doctest::Approx(1).epsilon(1e-5));
    }
    plain_kernels().layer_norm({x.data(), ones.data(), nullptr, x.data(), dim, dim, 3, dim, 1e-6f}, queue);
    CHECK(same_bits(x, y));
  }
}
