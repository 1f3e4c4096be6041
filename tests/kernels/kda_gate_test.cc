#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

// The rows of q and k lie apart, with NaN between them.
struct KdaGateCase {
  int64_t rows;
  int heads, dim;
  int64_t stride;
  Values q, k, g, beta, a_log, dt_bias;

  KdaGateCase(Random& random, int64_t rows_, int heads_, int dim_, float scale = 2)
      : rows(rows_), heads(heads_), dim(dim_), stride(int64_t(heads_) * dim_ + 2) {
    q = poisoned(rows * stride), k = q;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < stride - 2; ++i)
        q[r * stride + i] = scale * random.normal(), k[r * stride + i] = scale * random.normal();
    g = random.normals(rows * heads * dim, 3), beta = random.normals(rows * heads, 3);
    a_log = random.normals(heads + 4), dt_bias = random.normals(heads * dim);
  }
  // q, k, g and beta, one behind the other.
  Values run(void (*kernel)(const KdaGateArgs&, Queue&), Queue& queue, float bound = -5) const {
    KdaGateCase c = *this;
    kernel({c.q.data(), c.k.data(), c.g.data(), c.beta.data(), c.a_log.data(), c.dt_bias.data(), stride,
            stride, rows, heads, dim, bound},
           queue);
    Values all = c.q;
    for (const Values* values : {&c.k, &c.g, &c.beta}) all.insert(all.end(), values->begin(), values->end());
    return all;
  }
};

}  // namespace

TEST_SUITE("kernels/kda_gate") {
  TEST_CASE("every implementation gives the values worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::kda_gate)) {
      INFO(variant.name);
      SerialQueue queue;
      Values q = {3, 4, 0, 0, 2e-3f, 0}, k = {3, 4, 0, 0, 0, 1e-3f}, g = {0, 0.25f, 0.5f, 0.25f, 2, -1e4f},
             b = {0, 100, -100};
      const Values a_log = {0, std::log(4.f), 0.5f, NAN}, dt_bias = {0, -0.25f, 0, 0.25f, 0, 0};
      variant.run({q.data(), k.data(), g.data(), b.data(), a_log.data(), dt_bias.data(), 6, 6, 1, 3, 2, -5},
                  queue);
      const float root = std::sqrt(0.5f);
      // The last head: the sum of squares is 4e-6 and 1e-6, to which 1e-6 is added.
      CHECK(relative_error(q, {0.6f * root, 0.8f * root, 0, 0, root * 2 / std::sqrt(5.f), 0}) < 1e-6);
      CHECK(relative_error(k, {0.6f, 0.8f, 0, 0, 0, root}) < 1e-6);
      CHECK(relative_error(g, {-2.5f, -2.5f, -4.403985f, -4.403985f, -4.821705f, 0}) < 1e-6);
      CHECK(relative_error(b, {0.5f, 1, 0}) < 1e-6);
    }
  }

  TEST_CASE("every variant agrees with the reference, the same bits on any thread") {
    for (const auto& [rows, heads, dim] :
         {std::array{1, 1, 1}, {3, 9, 17}, {1, 96, 128}, {5, 8, 64}, {2, 3, 100}})
      for (const float scale : {2.f, 1e-3f})
        for (const auto& variant : variants(&KernelTable::kda_gate)) {
          INFO(variant.name, " heads ", heads, " dim ", dim);
          Random random(2);
          KdaGateCase c(random, rows, heads, dim, scale);
          SerialQueue serial;
          BackwardQueue backward;
          const Values values = c.run(variant.run, serial);
          CHECK(relative_error(values, c.run(ref::kda_gate, serial)) < 1e-6);
          CHECK(same_bits(c.run(variant.run, backward), values));
          CHECK(relative_error(c.run(variant.run, serial, 0), c.run(ref::kda_gate, serial, 0)) < 1e-6);
        }
  }

  TEST_CASE("without a bound the gate is that of softplus, with a small relative error everywhere") {
    for (const auto& variant : implementations(&KernelTable::kda_gate)) {
      INFO(variant.name);
      for (const float z : {-80.f, -20.f, -3.f, -0.5f, 0.f, 1e-3f, 0.7f, 2.f, 15.f, 90.f, 1e4f}) {
        Values q = {1}, k = {1}, g = {z - 0.25f}, b = {0};
        const Values a_log = {std::log(3.f)}, dt_bias = {0.25f};
        SerialQueue queue;
        variant.run({q.data(), k.data(), g.data(), b.data(), a_log.data(), dt_bias.data(), 1, 1, 1, 1, 1, 0},
                    queue);
        const double x = double(z - 0.25f) + 0.25f;
        CHECK(g[0] == doctest::Approx(-3 * (x > 40 ? x : std::log1p(std::exp(x)))).epsilon(1e-6));
      }
    }
  }

  TEST_CASE("the gate never leaves [-5, 0] (LIN-01)") {
    for (const auto& variant : implementations(&KernelTable::kda_gate)) {
      INFO(variant.name);
      Random random(2);
      KdaGateCase c(random, 2, 2, 64);
      for (float& z : c.g) z *= 50;
      SerialQueue queue;
      const Values all = c.run(variant.run, queue);
      for (size_t i = 2 * c.q.size(); i < 2 * c.q.size() + c.g.size(); ++i)
        CHECK((all[i] >= -5 && all[i] <= 0));
    }
  }
}
