#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<ActivationArgs>& variant, const Values& gate, const Values& up, float beta = 4,
           float linear_beta = 25) {
  Values y = poisoned(gate.size());
  BackwardQueue queue;
  variant.run(
      {gate.data(), up.data(), y.data(), 1, int(gate.size()), ActivationKind::situ, beta, linear_beta},
      queue);
  return y;
}

}  // namespace

TEST_SUITE("kernels/activation") {
  TEST_CASE("SiTU gives the values worked out by hand (MOE-08)") {
    for (const auto& variant : implementations(&KernelTable::activation)) {
      INFO(variant.name);
      const Values y = run(variant, {0, 1, 3, -2, 20, 4}, {1, 1, 50, 10, -100, 25});
      const Values want = {0, 0.715818f, 58.326219f, -2.092976f, -99.923856f, 56.95932f};
      for (size_t i = 0; i < want.size(); ++i) CHECK(y[i] == doctest::Approx(want[i]).epsilon(2e-6));
    }
  }

  TEST_CASE("linear_beta 0 leaves up as it is") {
    for (const auto& variant : implementations(&KernelTable::activation)) {
      INFO(variant.name);
      CHECK(run(variant, {1}, {1000}, 1, 0)[0] == doctest::Approx(1000 * std::tanh(1) / (1 + std::exp(-1))));
    }
  }

  TEST_CASE("each value has a small relative error, from 1e-6 to saturation") {
    for (const auto& variant : variants(&KernelTable::activation)) {
      INFO(variant.name);
      Values gate, up;
      for (float x = 1e-6f; x < 300; x *= 1.03f)
        for (float sign : {1.f, -1.f}) gate.push_back(sign * std::min(x, 85.f)), up.push_back(x);
      const Values y = run(variant, gate, up), want = run({"ref", ref::activation}, gate, up);
      for (size_t i = 0; i < y.size(); ++i) {
        INFO("gate ", gate[i], " up ", up[i]);
        CHECK(std::abs(y[i] - want[i]) <= 2e-6 * std::abs(want[i]));
      }
    }
  }

  TEST_CASE("extreme values: finite where the function is, NaN where an input is") {
    const float inf = INFINITY;
    for (const auto& variant : implementations(&KernelTable::activation)) {
      INFO(variant.name);
      const Values y = run(variant, {1e30f, -1e30f, inf, -inf, NAN, 1}, {1e30f, 1e30f, -inf, inf, 1, NAN});
      CHECK(y[0] == 100);
      CHECK(y[1] == 0);
      CHECK(y[2] == -100);
      CHECK(y[3] == 0);
      CHECK(std::isnan(y[4]));
      CHECK(std::isnan(y[5]));
    }
  }

  TEST_CASE("every variant agrees with the reference, in place as well") {
    for (const int count : {1, 2, 15, 17, 2047, 2048, 2049, 5000})
      for (const auto& variant : variants(&KernelTable::activation)) {
        INFO(variant.name, " count ", count);
        Random random(1);
        Values gate = random.normals(count, 5), up = random.normals(count, 30);
        const Values y = run(variant, gate, up);
        CHECK(relative_error(y, run({"ref", ref::activation}, gate, up)) < 1e-6);
        SerialQueue queue;
        variant.run({gate.data(), up.data(), up.data(), count, 1, ActivationKind::situ, 4, 25}, queue);
        CHECK(same_bits(up, y));
      }
  }
}
