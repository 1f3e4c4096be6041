#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  int tokens, streams, dim;
};

struct HyperCase {
  Shape shape;
  Values x, logits, base, scale, y;
  int iterations = 20;
  float eps = 1e-6f;

  explicit HyperCase(Shape s) : shape(s) {
    Random random(uint64_t(s.tokens * 100 + s.dim));
    const size_t n = size_t(s.streams), mixes = (2 + n) * n;
    x = random.normals(s.tokens * n * s.dim);
    logits = random.normals(s.tokens * mixes, 2);
    base = random.normals(mixes);
    scale = random.normals(3);
    y = random.normals(size_t(s.tokens) * s.dim);
  }
  size_t coefficients_of_a_token() const { return size_t(1 + shape.streams) * shape.streams; }

  struct Mixed {
    Values y, coefficients;
  };
  Mixed mix(void (*kernel)(const HyperMixArgs&, Queue&)) const {
    Mixed m{poisoned(size_t(shape.tokens) * shape.dim), poisoned(shape.tokens * coefficients_of_a_token())};
    BackwardQueue queue;
    kernel({x.data(), logits.data(), base.data(), scale.data(), m.y.data(), m.coefficients.data(),
            shape.tokens, shape.streams, shape.dim, iterations, 1e-5f, eps},
           queue);
    return m;
  }
  Values add(void (*kernel)(const HyperAddArgs&, Queue&), const Values& coefficients) const {
    Values streams = x;
    BackwardQueue queue;
    kernel({streams.data(), y.data(), coefficients.data(), shape.tokens, shape.streams, shape.dim}, queue);
    return streams;
  }
};

const Shape kShapes[] = {{1, 1, 1},  {1, 4, 64}, {5, 4, 4096}, {3, 2, 17}, {2, kHyperStreamsMax, 33},
                         {7, 3, 100}};

}  // namespace

TEST_SUITE("kernels/hyper_connection") {
  TEST_CASE("the mix of four streams gives the published values") {
    // x has mean square 1 - 1e-5, so that the root is 1; scales are 1 and bases 0: Z is what the logits say.
    for (const auto& variant : implementations(&KernelTable::hyper_mix)) {
      INFO(variant.name);
      HyperCase c({1, 4, 2});
      c.x.assign(8, std::sqrt(1 - 1e-5f));
      c.scale = {1, 1, 1}, c.base.assign(24, 0);
      c.logits = {0,    1,     -1, 2, 0, 1, -1, 2,  -1, 1.5f, 0.5f, -0.5f,
                  0.5f, -0.5f, 2,  1, 2, 1, 0,  -1, 0,  -1,   1.5f, 0.5f};
      const auto m = c.mix(variant.run);
      const double sigmoids[] = {0.5, 0.7310586, 0.2689414, 0.8807971};
      double pre = 0;
      for (int k = 0; k < 4; ++k) {
        pre += sigmoids[k] + 1e-6;
        CHECK(m.coefficients[k] == doctest::Approx(2 * sigmoids[k]).epsilon(1e-5));
      }
      for (int d = 0; d < 2; ++d) CHECK(m.y[d] == doctest::Approx(pre * c.x[0]).epsilon(1e-5));
      const double want[] = {.053770, .652989, .146620, .146620, .146620, .053770, .399805, .399804,
                             .652989, .239469, .053770, .053771, .146620, .053770, .399805, .399804};
      for (int i = 0; i < 16; ++i) CHECK(std::abs(m.coefficients[4 + i] - want[i]) < 2e-6);
    }
  }

  TEST_CASE("rows and columns of the mixing matrix sum to 1") {
    for (const auto& variant : implementations(&KernelTable::hyper_mix))
      for (const Shape& shape : kShapes) {
        HyperCase c(shape);
        const auto m = c.mix(variant.run);
        const int n = shape.streams;
        for (int t = 0; t < shape.tokens; ++t) {
          const float* matrix = m.coefficients.data() + t * c.coefficients_of_a_token() + n;
          for (int j = 0; j < n; ++j) {
            double row = 0, column = 0;
            for (int k = 0; k < n; ++k) row += matrix[n * j + k], column += matrix[n * k + j];
            CHECK(row == doctest::Approx(1).epsilon(2e-2));  // twenty rounds are not the limit
            CHECK(column == doctest::Approx(1).epsilon(1e-4));
          }
        }
      }
  }

  TEST_CASE("streams are read from the old x, and the first index is the source") {
    for (const auto& variant : implementations(&KernelTable::hyper_add)) {
      INFO(variant.name);
      HyperCase c({1, 2, 1});
      c.x = {1, 10}, c.y = {100};
      const Values y = c.add(variant.run, {0.5f, 2, /* C */ 0, 1, 3, 0});
      CHECK(y[0] == 50 + 0 * 1 + 3 * 10);
      CHECK(y[1] == 200 + 1 * 1 + 0 * 10);
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    for (const Shape& shape : kShapes)
      for (const int iterations : {1, 2, 20}) {
        HyperCase c(shape);
        c.iterations = iterations;
        INFO(shape.tokens, " x ", shape.streams, " x ", shape.dim, " iterations ", iterations);
        const auto want = c.mix(ref::hyper_mix);
        for (const auto& variant : variants(&KernelTable::hyper_mix)) {
          INFO(variant.name);
          const auto m = c.mix(variant.run);
          CHECK(relative_error(m.y, want.y) < 3e-6);
          CHECK(relative_error(m.coefficients, want.coefficients) < 1e-5);
        }
        for (const auto& variant : variants(&KernelTable::hyper_add)) {
          INFO(variant.name);
          CHECK(relative_error(c.add(variant.run, want.coefficients),
                               c.add(ref::hyper_add, want.coefficients)) < 2e-6);
        }
      }
  }

  TEST_CASE("a token alone gives the bits that it gives among others") {
    for (const auto& variant : implementations(&KernelTable::hyper_mix)) {
      INFO(variant.name);
      HyperCase all({5, 4, 100});
      const auto together = all.mix(variant.run);
      HyperCase one({1, 4, 100});
      one.base = all.base, one.scale = all.scale;
      one.x = part(all.x, 3, 400), one.logits = part(all.logits, 3, 24);
      const auto alone = one.mix(variant.run);
      CHECK(same_bits(alone.y, part(together.y, 3, 100)));
      CHECK(same_bits(alone.coefficients, part(together.coefficients, 3, 20)));
    }
  }

  TEST_CASE("an embedding goes into each stream, and the streams into their mean") {
    BackwardQueue queue;
    const Values embedding = {1, 2, 3, 4, 5, 6};
    Values x = poisoned(18), y = poisoned(6);
    plain_kernels().hyper_spread({embedding.data(), x.data(), 2, 3, 3}, queue);
    CHECK(x == Values{1, 2, 3, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6});
    x[0] = 4;
    plain_kernels().hyper_mean({x.data(), y.data(), 2, 3, 3}, queue);
    CHECK(y == Values{2, 2, 3, 4, 5, 6});
  }
}
