#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<AlphaSwigluArgs>& variant, const Values& x, int rows = 1) {
  Values y = poisoned(x.size() / 2);
  BackwardQueue queue;
  variant.run({x.data(), y.data(), rows, int(y.size()) / rows, 1.702f, 7}, queue);
  return y;
}

}  // namespace

TEST_SUITE("kernels/alpha_swiglu") {
  TEST_CASE("the published values, columns alternate") {
    for (const auto& variant : implementations(&KernelTable::alpha_swiglu)) {
      INFO(variant.name);
      const Values y = run(variant, {1, 0.5f, 9, -9, -3, 2});
      CHECK(y[0] == doctest::Approx(1.268694).epsilon(1e-6));
      CHECK(y[1] == doctest::Approx(-41.999719).epsilon(1e-6));
      CHECK(y[2] == doctest::Approx(-0.0542139).epsilon(1e-5));
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    for (const int count : {1, 2, 15, 17, 2047, 2048, 2049, 5000})
      for (const auto& variant : variants(&KernelTable::alpha_swiglu)) {
        INFO(variant.name, " count ", count);
        Random random(uint64_t(count) + 1);
        const Values x = random.normals(size_t(count) * 2, 5);
        CHECK(relative_error(run(variant, x), run({"ref", ref::alpha_swiglu}, x)) < 1e-6);
      }
  }

  TEST_CASE("extreme values: finite where the function is, NaN where an input is") {
    const float inf = INFINITY;
    for (const auto& variant : implementations(&KernelTable::alpha_swiglu)) {
      INFO(variant.name);
      const Values y = run(variant, {inf, inf, -1e30f, 1, 1, -inf, NAN, 1, 1, NAN});
      CHECK(y[0] == doctest::Approx(56).epsilon(1e-4));
      CHECK(y[1] == 0);
      CHECK(y[2] == doctest::Approx(-6 / (1 + std::exp(-1.702))));
      CHECK(std::isnan(y[3]));
      CHECK(std::isnan(y[4]));
    }
  }
}
