#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values spread(Values x, int dim) {
  BackwardQueue queue;
  plain_kernels().hadamard({x.data(), int64_t(x.size()) / dim, dim}, queue);
  return x;
}

}  // namespace

TEST_SUITE("kernels/hadamard") {
  TEST_CASE("the values worked out by hand, row by row") {
    CHECK(spread({1, 2, 3, 4, 0, 0, 2, 0}, 4) == Values{5, -1, -2, 0, 1, 1, -1, -1});
    CHECK(spread({3}, 1) == Values{3});
  }

  TEST_CASE("agrees with the sum of its definition") {
    Random random(1);
    for (const int dim : {2, 64, 128}) {
      const Values x = random.normals(3 * dim);
      Values expected(x.size());
      for (int r = 0; r < 3; ++r)
        for (int i = 0; i < dim; ++i) {
          double sum = 0;
          for (int j = 0; j < dim; ++j)
            sum += (std::popcount(unsigned(i & j)) % 2 ? -1.0 : 1.0) * x[r * dim + j];
          expected[r * dim + i] = float(sum / std::sqrt(double(dim)));
        }
      CHECK(relative_error(spread(x, dim), expected) < 1e-6);
      CHECK(relative_error(spread(spread(x, dim), dim), x) < 1e-6);  // its own inverse
    }
  }

  TEST_CASE("a row with one outlier loses much less to rounding once it is spread") {
    Random random(2);
    Values x = random.normals(128, 1e-3f);
    x[5] = 100;
    const auto relative_rounding = [](const Values& row) {
      Values y = row;
      SerialQueue queue;
      plain_kernels().fp8_round({y.data(), 1, 128}, queue);
      double lost = 0;  // of the small values, each against its size
      for (size_t d = 0; d < y.size(); ++d)
        if (d != 5) lost += std::abs(double(y[d]) - row[d]) / std::abs(row[d]) / 127;
      return lost;
    };
    CHECK(relative_rounding(x) > 10 * relative_rounding(spread(x, 128)));
  }
}
