#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  int tokens, heads, dim, pad;
  Rope2dKind kind = Rope2dKind::pairs;
};

struct RopeCase {
  static constexpr int kSide = 512;

  Shape shape;
  Values x, turns;
  std::vector<int32_t> rows, columns;

  explicit RopeCase(Shape s, double theta = 10000) : shape(s) {
    Random random(uint64_t(s.tokens * 1000 + s.dim));
    x = random.normals(size_t(s.tokens) * stride());
    turns.resize(size_t(kSide) * s.dim / 2);
    fill_rope_2d_turns(turns.data(), kSide, s.dim, theta);
    for (int t = 0; t < s.tokens; ++t) {
      rows.push_back(int32_t(random.integer(0, kSide - 1)));
      columns.push_back(int32_t(random.integer(0, kSide - 1)));
    }
  }
  size_t stride() const { return size_t(shape.heads) * shape.dim + shape.pad; }

  Values run(void (*kernel)(const Rope2dArgs&, Queue&)) const {
    Values y = x;
    BackwardQueue queue;
    kernel({y.data(), rows.data(), columns.data(), turns.data(), int64_t(stride()), shape.dim, shape.tokens,
            shape.heads, shape.dim, shape.kind},
           queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/rope_2d") {
  TEST_CASE("even pairs turn by the column and odd ones by the row, by the values worked out by hand") {
    // theta 10000, dim 8: pairs 0 and 1 turn by 1 radian a step, pairs 2 and 3 by 10000^(-1/2) = 0.01.
    for (const auto& variant : implementations(&KernelTable::rope_2d)) {
      INFO(variant.name);
      RopeCase c({1, 1, 8, 0});
      c.x = {1, 0, 1, 0, 0, 1, 0, 1};
      c.rows = {3}, c.columns = {2};
      const Values y = c.run(variant.run);
      const double want[] = {std::cos(2),     std::sin(2),    std::cos(3),     std::sin(3),
                             -std::sin(0.02), std::cos(0.02), -std::sin(0.03), std::cos(0.03)};
      for (size_t i = 0; i < 8; ++i) CHECK(y[i] == doctest::Approx(want[i]).epsilon(1e-6));
    }
  }

  TEST_CASE("halves turn by the row and then by the column, by the values worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::rope_2d)) {
      INFO(variant.name);
      RopeCase c({1, 1, 8, 0, Rope2dKind::halves});
      c.x = {1, 1, 1, 0, 0, 0, 0, 1};  // partners are 4 lanes apart
      c.rows = {3}, c.columns = {2};
      const Values y = c.run(variant.run);
      const double want[] = {std::cos(3), std::cos(0.03), std::cos(2), -std::sin(0.02),
                             std::sin(3), std::sin(0.03), std::sin(2), std::cos(0.02)};
      for (size_t i = 0; i < 8; ++i) CHECK(y[i] == doctest::Approx(want[i]).epsilon(1e-6));
    }
  }

  TEST_CASE("the patch at the origin stays as it is") {
    for (const auto& variant : implementations(&KernelTable::rope_2d)) {
      INFO(variant.name);
      RopeCase c({1, 3, 32, 0});
      c.rows = c.columns = {0};
      CHECK(c.run(variant.run) == c.x);
    }
  }

  TEST_CASE("every variant agrees with the reference and leaves the gaps between tokens alone") {
    for (const Shape shape : {Shape{1, 1, 4, 0},
                              {3, 2, 12, 5},
                              {5, 4, 32, 64},
                              {7, 24, 128, 1536},
                              {2, 1, 260, 1},
                              {2, 2, kRope2dDimMax, 0},
                              {1, 1, 4, 0, Rope2dKind::halves},
                              {3, 2, 12, 5, Rope2dKind::halves},
                              {5, 16, 64, 1024, Rope2dKind::halves},
                              {2, 2, kRope2dDimMax, 0, Rope2dKind::halves}})
      for (const auto& variant : variants(&KernelTable::rope_2d)) {
        INFO(variant.name, " at ", shape.tokens, " x ", shape.heads, " x ", shape.dim);
        const RopeCase c(shape);
        const Values y = c.run(variant.run);
        CHECK(relative_error(y, c.run(ref::rope_2d)) < 1e-6);
        for (int t = 0; t < shape.tokens; ++t)
          for (int i = 0; i < shape.pad; ++i) {
            const size_t at = (size_t(t) + 1) * c.stride() - 1 - size_t(i);
            CHECK(y[at] == c.x[at]);
          }
      }
  }
}
