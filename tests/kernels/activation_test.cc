#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<ActivationArgs>& variant, const Values& gate, const Values& up,
           const ActivationForm& form) {
  Values y = poisoned(gate.size());
  BackwardQueue queue;
  variant.run({gate.data(), up.data(), y.data(), 1, int(gate.size()), form}, queue);
  return y;
}
Values run(const Variant<ActivationArgs>& variant, const Values& gate, const Values& up, float beta = 4,
           float linear_beta = 25) {
  return run(variant, gate, up, ActivationForm{ActivationKind::situ, beta, linear_beta});
}

ActivationForm swiglu(float limit) { return {.kind = ActivationKind::swiglu, .limit = limit}; }

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

  TEST_CASE("SwiGLU gives the values worked out by hand, with and without a limit") {
    const Values gate = {0, 1, -2, 20, -20, 3}, up = {5, 2, -3, 100, 100, -50};
    const double s1 = 1 / (1 + std::exp(-1)), s2 = 1 / (1 + std::exp(2)), s3 = 1 / (1 + std::exp(-3));
    const double small = 1 / (1 + std::exp(20)), ten = 1 / (1 + std::exp(-10));
    for (const auto& variant : implementations(&KernelTable::activation)) {
      INFO(variant.name);
      const Values free = run(variant, gate, up, swiglu(0)), limited = run(variant, gate, up, swiglu(10));
      const double want_free[] = {0, 2 * s1, 6 * s2, 2000, -2000 * small, -150 * s3};
      const double want[] = {0,         2 * s1,       6 * s2,
                             100 * ten, -200 * small, -30 * s3};  // the gate has no lower limit
      for (size_t i = 0; i < gate.size(); ++i) {
        CHECK(free[i] == doctest::Approx(want_free[i]).epsilon(2e-6));
        CHECK(limited[i] == doctest::Approx(want[i]).epsilon(2e-6));
      }
      for (const float limit : {0.f, 10.f}) {
        const Values y = run(variant, {NAN, 1, -INFINITY}, {1, NAN, 1}, swiglu(limit));
        CHECK(std::isnan(y[0]));
        CHECK(std::isnan(y[1]));
      }
    }
  }

  TEST_CASE("SwiGLU: every variant agrees with the reference") {
    for (const int count : {1, 17, 2049})
      for (const float limit : {0.f, 2.f})
        for (const auto& variant : variants(&KernelTable::activation)) {
          INFO(variant.name, " count ", count);
          Random random(4);
          const Values gate = random.normals(count, 5), up = random.normals(count, 30);
          CHECK(relative_error(run(variant, gate, up, swiglu(limit)),
                               run({"ref", ref::activation}, gate, up, swiglu(limit))) < 1e-6);
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
        variant.run({gate.data(), up.data(), up.data(), count, 1, {ActivationKind::situ, 4, 25}}, queue);
        CHECK(same_bits(up, y));
      }
  }
}
