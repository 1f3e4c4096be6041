#include "kernels/rms_norm/rms_norm.h"

#include <doctest/doctest.h>

#include "backend/cpu/thread_pool.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

struct Shape {
  int64_t rows;
  int dim, x_pad, y_pad;
};

struct RmsNormCase {
  Shape shape;
  Values x, weight;
  float eps = 1e-5f;

  explicit RmsNormCase(Shape s) : shape(s) {
    Random random(uint64_t(s.dim * 100 + s.rows));
    x = poisoned(size_t(s.rows) * x_stride());
    for (int64_t r = 0; r < s.rows; ++r)
      for (int d = 0; d < s.dim; ++d) x[size_t(r) * x_stride() + d] = random.normal() * float(r + 1);
    weight = random.normals(size_t(s.dim));
  }
  size_t x_stride() const { return size_t(shape.dim + shape.x_pad); }
  size_t y_stride() const { return size_t(shape.dim + shape.y_pad); }

  Values run(void (*kernel)(const RmsNormArgs&, Queue&), int64_t first = 0, int64_t rows = -1) const {
    if (rows < 0) rows = shape.rows;
    Values y = poisoned(size_t(rows) * y_stride());
    ThreadPool queue(3);
    kernel({x.data() + size_t(first) * x_stride(), weight.data(), y.data(), int64_t(x_stride()),
            int64_t(y_stride()), rows, shape.dim, eps},
           queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/rms_norm") {
  TEST_CASE("the reference gives the value worked out by hand") {
    RmsNormCase c({1, 2, 0, 0});
    c.x = {3, 4}, c.weight = {1, 10}, c.eps = 12.5f;  // mean of squares 12.5; 1 / sqrt(25) = 0.2
    CHECK(relative_error(c.run(ref::rms_norm), {0.6f, 8.f}) < 1e-7);
  }

  TEST_CASE("every variant agrees with the reference and leaves the gaps between rows alone") {
    for (const Shape shape :
         {Shape{1, 1, 0, 0}, {3, 5, 2, 1}, {2, 64, 0, 7}, {7, 127, 3, 0}, {5, 2048, 64, 64}})
      for (const auto& variant : variants(&KernelTable::rms_norm)) {
        INFO(variant.name, " at ", shape.rows, " x ", shape.dim);
        const RmsNormCase c(shape);
        CHECK(relative_error(c.run(variant.run), c.run(ref::rms_norm)) < 2e-6);
      }
  }

  TEST_CASE("y may be x") {
    for (const auto& variant : variants(&KernelTable::rms_norm)) {
      INFO(variant.name);
      RmsNormCase c({4, 77, 0, 0});
      const Values expected = c.run(variant.run);
      SerialQueue queue;
      variant.run({c.x.data(), c.weight.data(), c.x.data(), 77, 77, 4, 77, c.eps}, queue);
      CHECK(c.x == expected);
    }
  }

  TEST_CASE("a row alone equals the same row among others, bit for bit") {
    for (const auto& variant : variants(&KernelTable::rms_norm)) {
      INFO(variant.name);
      const RmsNormCase c({9, 131, 0, 0});
      const Values all = c.run(variant.run);
      for (int64_t r = 0; r < 9; ++r)
        CHECK(c.run(variant.run, r, 1) == Values(all.begin() + r * 131, all.begin() + (r + 1) * 131));
    }
  }
}

}  // namespace dsa
