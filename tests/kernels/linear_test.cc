#include "kernels/linear/linear.h"

#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/thread_pool.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

struct Shape {
  int rows, in_dim, out_dim, x_pad = 0, y_pad = 0;
};

struct LinearCase {
  Shape shape;
  DType type;
  Values x, f32_weight;
  std::vector<bf16> bf16_weight;
  std::vector<uint8_t> fp8_weight;  // every code but NaN
  Values scales;

  LinearCase(Shape s, DType t) : shape(s), type(t) {
    Random random(uint64_t(s.rows) * 1000003 + uint64_t(s.in_dim) * 1009 + uint64_t(s.out_dim));
    x = poisoned(size_t(s.rows) * x_stride());
    for (int r = 0; r < s.rows; ++r)
      for (int i = 0; i < s.in_dim; ++i) x[size_t(r) * x_stride() + i] = random.normal();
    f32_weight = random.normals(size_t(s.in_dim) * s.out_dim);
    bf16_weight = random.bf16_normals(size_t(s.in_dim) * s.out_dim);
    fp8_weight.resize(size_t(s.in_dim) * s.out_dim);
    for (uint8_t& code : fp8_weight) code = uint8_t(random.integer(0, 0x7e) | random.integer(0, 1) << 7);
    scales.resize(size_t((s.in_dim + 127) / 128) * size_t((s.out_dim + 127) / 128));
    for (float& scale : scales) scale = random.uniform(0.001f, 0.02f);
  }
  size_t x_stride() const { return size_t(shape.in_dim + shape.x_pad); }
  size_t y_stride() const { return size_t(shape.out_dim + shape.y_pad); }

  Values run(void (*kernel)(const LinearArgs&, Queue&), int first = 0, int rows = -1) const {
    if (rows < 0) rows = shape.rows;
    Values y = poisoned(size_t(rows) * y_stride());
    ThreadPool queue(3);
    const void* weight = type == DType::bf16      ? static_cast<const void*>(bf16_weight.data())
                         : type == DType::f8_e4m3 ? static_cast<const void*>(fp8_weight.data())
                                                  : f32_weight.data();
    kernel({x.data() + size_t(first) * x_stride(), weight, type, y.data(), int64_t(x_stride()),
            int64_t(y_stride()), rows, shape.in_dim, shape.out_dim, scales.data()},
           queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/linear") {
  TEST_CASE("the reference gives the value worked out by hand") {
    LinearCase c({1, 3, 2}, DType::f32);
    c.x = {1, 2, 3}, c.f32_weight = {4, 5, 6, -1, 0.5f, 2};
    CHECK(c.run(ref::linear) == Values{32, 6});  // 4 + 10 + 18; -1 + 1 + 6
    c.type = DType::bf16;
    for (int i = 0; i < 6; ++i) c.bf16_weight[size_t(i)] = to_bf16(c.f32_weight[size_t(i)]);
    CHECK(c.run(ref::linear) == Values{32, 6});
    c.type = DType::f8_e4m3, c.scales = {0.5f};
    for (int i = 0; i < 6; ++i) c.fp8_weight[size_t(i)] = f32_to_e4m3(2 * c.f32_weight[size_t(i)]);
    CHECK(c.run(ref::linear) == Values{32, 6});
  }

  TEST_CASE("FP8: each tile of 128 x 128 has its scale, the last may be cut; a NaN code reaches its output") {
    for (const auto& variant : implementations(&KernelTable::linear)) {
      INFO(variant.name);
      LinearCase c({1, 130, 129}, DType::f8_e4m3);
      std::fill(c.x.begin(), c.x.end(), 0.f);
      c.x[127] = 1, c.x[128] = 10;
      std::fill(c.fp8_weight.begin(), c.fp8_weight.end(), f32_to_e4m3(1));
      c.scales = {1, 2, 3, 1e10f};
      c.fp8_weight[5 * 130 + 3] = 0x7f;
      const Values y = c.run(variant.run);
      CHECK(y[0] == 21);
      CHECK(y[127] == 21);
      CHECK(y[128] == doctest::Approx(1e11));
      CHECK(std::isnan(y[5]));
    }
  }

  TEST_CASE("every variant agrees with the reference and leaves the gaps between rows alone") {
    for (const Shape shape : {Shape{1, 1, 1},
                              {1, 7, 3, 1, 1},
                              {1, 2048, 70},
                              {2, 33, 9, 0, 5},
                              {4, 64, 4},
                              {6, 100, 37},
                              {7, 512, 33, 3, 2},
                              {13, 515, 5},
                              {17, 1030, 31, 2, 0},
                              {73, 40, 33},
                              {150, 96, 66, 0, 1}})
      for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
        for (const auto& variant : variants(&KernelTable::linear)) {
          INFO(variant.name, " ", dtype_name(type), " at ", shape.rows, " x ", shape.in_dim, " -> ",
               shape.out_dim);
          const LinearCase c(shape, type);
          CHECK(relative_error(c.run(variant.run), c.run(ref::linear)) < 1e-5);
        }
  }

  TEST_CASE("small integers give the exact product") {
    for (const auto& variant : variants(&KernelTable::linear)) {
      INFO(variant.name);
      LinearCase c({9, 1000, 11}, DType::bf16);
      Random random(5);
      for (float& v : c.x) v = float(random.integer(-8, 8));
      for (bf16& v : c.bf16_weight) v = to_bf16(float(random.integer(-8, 8)));
      CHECK(c.run(variant.run) == c.run(ref::linear));
    }
  }

  TEST_CASE("a row alone equals the same row among others, bit for bit") {
    for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
      for (const auto& variant : variants(&KernelTable::linear))
        for (const int in_dim : {31, 520, 1029}) {
          INFO(variant.name, " ", dtype_name(type), " in_dim ", in_dim);
          const LinearCase c({81, in_dim, 37}, type);
          Values alone;
          for (int r = 0; r < 81; ++r)
            for (const float v : c.run(variant.run, r, 1)) alone.push_back(v);
          for (const int rows : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 81})
            CHECK(c.run(variant.run, 0, rows) == Values(alone.begin(), alone.begin() + rows * 37));
        }
  }
}

}  // namespace dsa
