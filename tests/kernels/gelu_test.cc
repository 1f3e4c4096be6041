#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<GeluArgs>& variant, const Values& x, GeluKind kind) {
  Values y = poisoned(x.size());
  BackwardQueue queue;
  variant.run({x.data(), y.data(), int64_t(x.size()), kind}, queue);
  return y;
}

}  // namespace

TEST_SUITE("kernels/gelu") {
  TEST_CASE("both kinds give published values, and differ from each other") {
    for (const auto& variant : implementations(&KernelTable::gelu)) {
      INFO(variant.name);
      const Values x = {0, 1, -1, 2, -3};
      const Values exact = {0, 0.8413447f, -0.1586553f, 1.9544997f,
                            -0.0040497f};  // x Phi(x), from a table of Phi
      const Values tanh = {0, 0.8411920f, -0.1588080f, 1.9545977f, -0.0036374f};
      const Values y = run(variant, x, GeluKind::exact), z = run(variant, x, GeluKind::tanh);
      for (size_t i = 0; i < x.size(); ++i) {
        CHECK(y[i] == doctest::Approx(exact[i]).epsilon(2e-5));
        CHECK(z[i] == doctest::Approx(tanh[i]).epsilon(2e-5));
      }
    }
  }

  TEST_CASE("each value has a small relative error, in the tail as well") {
    for (const auto& variant : variants(&KernelTable::gelu))
      for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
        INFO(variant.name, " kind ", int(kind));
        Values x;
        for (float v = 1e-6f; v < 100; v *= 1.02f)
          for (float sign : {1.f, -1.f}) x.push_back(sign * v);
        const Values y = run(variant, x, kind), want = run({"ref", ref::gelu}, x, kind);
        for (size_t i = 0; i < x.size(); ++i) {
          INFO("x ", x[i]);
          // The exponent's rounding grows with it: 5e-6 where exp gives 1e-35.
          const double tolerance = x[i] > -2 ? 1e-6 : 1e-5;
          CHECK(std::abs(y[i] - want[i]) <= tolerance * std::abs(want[i]) + 1e-37);
        }
      }
  }

  TEST_CASE("extreme values: x or 0 far out, NaN where the input is") {
    for (const auto& variant : implementations(&KernelTable::gelu))
      for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
        INFO(variant.name, " kind ", int(kind));
        const Values y = run(variant, {1e6f, -1e6f, INFINITY, -INFINITY, NAN}, kind);
        CHECK(y[0] == 1e6f);
        CHECK(y[1] == 0);
        CHECK(y[2] == INFINITY);
        CHECK(std::isnan(y[3]));
        CHECK(std::isnan(y[4]));
      }
  }

  TEST_CASE("every variant agrees with the reference, in place as well") {
    for (const int count : {1, 2, 15, 17, 2047, 2048, 2049, 5000})
      for (const auto& variant : variants(&KernelTable::gelu))
        for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
          INFO(variant.name, " count ", count, " kind ", int(kind));
          Random random(1);
          Values x = random.normals(size_t(count), 3);
          const Values y = run(variant, x, kind);
          CHECK(relative_error(y, run({"ref", ref::gelu}, x, kind)) < 1e-6);
          SerialQueue queue;
          variant.run({x.data(), x.data(), count, kind}, queue);
          CHECK(same_bits(x, y));
        }
  }
}
