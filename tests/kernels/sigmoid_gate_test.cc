#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<SigmoidGateArgs>& variant, const Values& x, const Values& gate) {
  Values y = poisoned(x.size());
  BackwardQueue queue;
  variant.run({x.data(), gate.data(), y.data(), int64_t(x.size()), 1}, queue);
  return y;
}

}  // namespace

TEST_SUITE("kernels/sigmoid_gate") {
  TEST_CASE("every implementation gives the values worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::sigmoid_gate)) {
      INFO(variant.name);
      const Values y = run(variant, {2, 3, 5, -7, 1, NAN}, {0, std::log(2.f), INFINITY, -INFINITY, NAN, 0});
      CHECK(y[0] == 1);
      CHECK(y[1] == doctest::Approx(2));
      CHECK(y[2] == 5);
      CHECK(y[3] == 0);
      CHECK(std::isnan(y[4]));
      CHECK(std::isnan(y[5]));
    }
  }

  TEST_CASE("each value has a small relative error over the whole range of exp") {
    for (const auto& variant : variants(&KernelTable::sigmoid_gate)) {
      INFO(variant.name);
      Values gate;
      for (float x = -87; x <= 100; x += 0.0371f) gate.push_back(x);
      const Values ones(gate.size(), 1.f), y = run(variant, ones, gate);
      for (size_t i = 0; i < gate.size(); ++i) {
        const double want = 1 / (1 + std::exp(-double(gate[i])));
        INFO("gate ", gate[i]);
        CHECK(std::abs(y[i] - want) <= 3e-7 * want);
      }
    }
  }

  TEST_CASE("every variant agrees with the reference, in place as well") {
    for (const int count : {1, 3, 16, 33, 4095, 4096, 9000})
      for (const auto& variant : variants(&KernelTable::sigmoid_gate)) {
        INFO(variant.name, " count ", count);
        Random random(1);
        Values x = random.normals(count), gate = random.normals(count, 5);
        const Values y = run(variant, x, gate);
        CHECK(relative_error(y, run({"ref", ref::sigmoid_gate}, x, gate)) < 5e-7);
        SerialQueue queue;
        variant.run({x.data(), gate.data(), x.data(), 1, count}, queue);
        CHECK(same_bits(x, y));
      }
  }
}
