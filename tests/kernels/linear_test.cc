#include "kernels/linear/linear.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/thread_pool.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

struct Shape {
  int rows, in_dim, out_dim, x_pad = 0, y_pad = 0;
};

constexpr Route kRoutes[] = {Route::exact, Route::fast};
// The route that a variant takes when it is asked for one and has few rows: GPUs have the exact one alone.
Route taken(const std::string& variant, Route route) { return variant == "cuda" ? Route::exact : route; }
const char* name(Route route) { return route == Route::exact ? ", exact," : ", fast,"; }

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

  Values run(void (*kernel)(const LinearArgs&, Queue&), Route route = Route::exact, int first = 0,
             int rows = -1) const {
    if (rows < 0) rows = shape.rows;
    struct alignas(64) Line {
      uint8_t bytes[64];
    };
    std::vector<Line> workspace(linear_workspace_bytes(rows, shape.in_dim) / 64 + 1);
    memset(static_cast<void*>(workspace.data()), 0xff, workspace.size() * 64);
    Values y = poisoned(size_t(rows) * y_stride());
    ThreadPool queue(3);
    const void* weight = type == DType::bf16      ? static_cast<const void*>(bf16_weight.data())
                         : type == DType::f8_e4m3 ? static_cast<const void*>(fp8_weight.data())
                                                  : f32_weight.data();
    kernel({x.data() + size_t(first) * x_stride(), weight, type, y.data(), int64_t(x_stride()),
            int64_t(y_stride()), rows, shape.in_dim, shape.out_dim, scales.data(), route,
            route == Route::fast ? workspace.data() : nullptr},
           queue);
    return y;
  }

  // Whether GPUs round.
  bool many_rows() const {
    return type != DType::f32 && shape.rows >= kLinearManyRows && x_stride() % 4 == 0 &&
           shape.in_dim % (type == DType::bf16 ? 8 : 16) == 0;
  }
  // With both factors as GPUs round them.
  LinearCase rounded() const {
    LinearCase c = *this;
    if (!many_rows()) return c;
    for (float& v : c.x) v = shape.rows <= kLinearPiecesRows ? two_pieces(v) : to_f32(to_bf16(v));
    if (type == DType::bf16) return c;
    c.type = DType::bf16;
    for (int o = 0; o < shape.out_dim; ++o)
      for (int i = 0; i < shape.in_dim; ++i)
        c.bf16_weight[size_t(o) * size_t(shape.in_dim) + i] =
            to_bf16(fp8_value(fp8_weight.data(), scales.data(), shape.in_dim, o, i));
    return c;
  }
  Values want(const std::string& variant, Route route) const {
    return variant == "cuda" && route == Route::fast ? rounded().run(ref::linear) : run(ref::linear, route);
  }
  double tolerance(const std::string& variant, Route route) const {
    return variant == "cuda" && route == Route::fast && many_rows() ? 3e-5 : 1e-5;
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
                              {150, 96, 66, 0, 1},
                              {3, 2100, 9, 1, 2},
                              {19, 1, 2},
                              {20, 4511, 34, 3, 1}})
      for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
        for (const auto& variant : variants(&KernelTable::linear))
          for (const Route route : kRoutes) {
            INFO(variant.name, name(route), " ", dtype_name(type), " at ", shape.rows, " x ", shape.in_dim,
                 " -> ", shape.out_dim);
            const LinearCase c(shape, type);
            CHECK(relative_error(c.run(variant.run, route), c.want(variant.name, route)) <
                  c.tolerance(variant.name, route));
          }
  }

  TEST_CASE("many rows: what GPUs round, and what they leave exact") {
    for (const Shape shape : {Shape{64, 128, 48},
                              {9, 136, 20},
                              {33, 640, 257, 4, 3},
                              {33, 640, 272, 4, 4},
                              {99, 256, 144, 4, 4},
                              {12, 512, 32},
                              {130, 512, 16, 0, 4},
                              {128, 132, 8},
                              {67, 384, 33, 1, 0},
                              {67, 768, 48},
                              {kLinearPiecesRows, 64, 24},
                              {kLinearPiecesRows + 1, 64, 24}})
      for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
        for (const auto& variant : variants(&KernelTable::linear)) {
          INFO(variant.name, " ", dtype_name(type), " at ", shape.rows, " x ", shape.in_dim, " -> ",
               shape.out_dim);
          LinearCase c(shape, type);
          for (size_t i = 0; i < c.x.size(); ++i)  // blocks of unlike magnitude, some of them zero
            c.x[i] *= i / 128 % 5 == 4 ? 0.f : i / 128 % 3 == 1 ? 1e-3f : 1.f;
          const Values fast = c.run(variant.run, Route::fast);
          CHECK(relative_error(fast, c.want(variant.name, Route::fast)) <
                c.tolerance(variant.name, Route::fast));
          CHECK(relative_error(fast, c.run(ref::linear)) < 0.01);
          CHECK(relative_error(c.run(variant.run), c.run(ref::linear)) < 1e-5);
          CHECK(same_bits(c.run(variant.run, Route::fast), fast));
        }
  }

  TEST_CASE("many rows on the fast route: NaN and infinity stay in their row") {
    for (const auto& variant : implementations(&KernelTable::linear))
      for (const DType type : {DType::bf16, DType::f8_e4m3})
        for (const float value : {std::nanf(""), INFINITY, -INFINITY}) {
          INFO(variant.name, " ", dtype_name(type), " ", value);
          LinearCase c({80, 512, 16}, type);
          c.x[size_t(33) * 512 + 130] = value;
          const Values y = c.run(variant.run, Route::fast);
          for (int r = 0; r < 80; ++r)
            for (int o = 0; o < 16; ++o) REQUIRE(std::isfinite(y[size_t(r) * 16 + o]) == (r != 33));
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

  TEST_CASE(
      "the fast route rounds both factors to nearest integers, ties to even; other weights know one route") {
    for (const auto& variant : implementations(&KernelTable::linear))
      for (const int rows : {1, 40}) {
        if (variant.name == "cuda" && rows >= kLinearManyRows) continue;
        INFO(variant.name, " rows ", rows);
        // s = 1 in the first block of x and 2 in the second; t = 2^-11, the first six outputs pick a column each.
        LinearCase c({rows, 600, 8}, DType::bf16);
        const Values x = {16383, 0.5f, 1.5f, -2.5f, 7.49f, 3}, rounded = {16383, 0, 2, -2, 7, 4};
        std::fill(c.x.begin(), c.x.end(), 0.f);
        for (int r = 0; r < rows; ++r) {
          std::copy(x.begin(), x.begin() + 5, c.x.begin() + r * 600);
          c.x[size_t(r) * 600 + 512] = x[5], c.x[size_t(r) * 600 + 599] = 2 * 16383;
        }
        std::fill(c.bf16_weight.begin(), c.bf16_weight.end(), to_bf16(0));
        for (int o = 0; o < 5; ++o) c.bf16_weight[size_t(o) * 600 + o] = to_bf16(1);
        c.bf16_weight[5 * 600 + 512] = to_bf16(1);
        // The last two are about weights: 1.5 steps become 2 beside a weight of 1.99, and stay beside one of 0.5.
        c.bf16_weight[6 * 600] = to_bf16(0x1.8p-11f), c.bf16_weight[6 * 600 + 550] = to_bf16(1.9921875f);
        c.bf16_weight[7 * 600] = to_bf16(0x1.8p-11f), c.bf16_weight[7 * 600 + 550] = to_bf16(0.5f);
        const Values fast = c.run(variant.run, Route::fast), exact = c.run(variant.run, Route::exact);
        for (int r = 0; r < rows; ++r) {
          const auto begin = fast.begin() + r * 8, exact_begin = exact.begin() + r * 8;
          CHECK(Values(exact_begin, exact_begin + 6) == x);
          if (taken(variant.name, Route::fast) == Route::exact) continue;
          CHECK(Values(begin, begin + 6) == rounded);
          CHECK(Values(begin + 6, begin + 8) == Values{16383 * 0x1p-10f, 16383 * 0x1.8p-11f});
        }
        if (taken(variant.name, Route::fast) == Route::exact) CHECK(fast == exact);
        for (const DType type : {DType::f32, DType::f8_e4m3}) {
          const LinearCase other({rows, 40, 9}, type);
          CHECK(other.run(variant.run, Route::fast) == other.run(variant.run, Route::exact));
        }
      }
  }

  TEST_CASE("the fast route stays within its bound of the exact product") {
    constexpr int kRows = 23, kIn = 2700, kOut = 21;
    LinearCase c({kRows, kIn, kOut}, DType::bf16);
    Random random(11);
    for (float& v : c.x) v *= random.integer(0, 99) == 0 ? 50.f : 1.f;  // outliers, as activations have them
    const auto x = [&](int r, int i) { return std::abs(double(c.x[size_t(r) * kIn + i])); };
    const auto w = [&](int o, int i) { return std::abs(double(to_f32(c.bf16_weight[size_t(o) * kIn + i]))); };
    std::vector<double> x_max(kRows * 6), w_max(kOut * 2), bounds;
    for (int i = 0; i < kIn; ++i) {
      for (int r = 0; r < kRows; ++r) x_max[r * 6 + i / 512] = std::max(x_max[r * 6 + i / 512], x(r, i));
      for (int o = 0; o < kOut; ++o) w_max[o * 2 + i / 2048] = std::max(w_max[o * 2 + i / 2048], w(o, i));
    }
    for (int r = 0; r < kRows; ++r)
      for (int o = 0; o < kOut; ++o) {
        double bound = 0;
        for (int i = 0; i < kIn; ++i) {
          const double x_error = x_max[r * 6 + i / 512] / 32766;
          bound += x_error * w(o, i) + 0x1p-12 * w_max[o * 2 + i / 2048] * (x(r, i) + x_error) +
                   1e-6 * x(r, i) * w(o, i);
        }
        bounds.push_back(bound);
      }
    const Values exact = c.run(ref::linear);
    for (const auto& variant : implementations(&KernelTable::linear)) {
      INFO(variant.name);
      const Values fast = c.run(variant.run, Route::fast);
      for (size_t i = 0; i < fast.size(); ++i) REQUIRE(std::abs(double(fast[i]) - exact[i]) <= bounds[i]);
      CHECK(fast != exact);
      CHECK(relative_error(fast, exact) < 2e-3);
    }
  }

  TEST_CASE("the largest integers of all columns add up without overflow") {
    for (const auto& variant : implementations(&KernelTable::linear))
      for (const int rows : {1, 31}) {
        INFO(variant.name, " rows ", rows);
        LinearCase c({rows, 2048, 5}, DType::bf16);
        std::fill(c.x.begin(), c.x.end(), -3.f);
        std::fill(c.bf16_weight.begin(), c.bf16_weight.end(), to_bf16(0x1.fep5f));
        for (const float v : c.run(variant.run, Route::fast))
          CHECK(v == doctest::Approx(-3.0 * 0x1.fep5 * 2048).epsilon(1e-6));
      }
  }

  TEST_CASE(
      "NaN and infinity reach every output of their row and no other row; the fast route makes them NaN") {
    const float nan = std::nanf(""), inf = INFINITY, largest = std::numeric_limits<float>::max();
    for (const auto& variant : implementations(&KernelTable::linear))
      for (const Route route : kRoutes)
        for (const int rows : {1, 5, 31})
          for (const int column : {0, 33, 69})
            for (const float value : {nan, inf, -inf, largest}) {
              INFO(variant.name, name(route), " rows ", rows, " column ", column, " value ", value);
              LinearCase c({rows, 70, 9}, DType::bf16);
              for (bf16& w : c.bf16_weight) w = to_bf16(0.5f);
              c.x[size_t(rows / 2) * 70 + column] = value;
              const Values y = c.run(variant.run, route);
              for (int r = 0; r < rows; ++r)
                for (int o = 0; o < 9; ++o) {
                  const float out = y[size_t(r) * 9 + o];
                  if (r != rows / 2)
                    REQUIRE(std::isfinite(out));
                  else if (std::isnan(value))
                    REQUIRE(std::isnan(out));
                  else if (value == largest)
                    REQUIRE(std::isfinite(out));
                  else if (taken(variant.name, route) == Route::fast)
                    REQUIRE(std::isnan(out));
                  else
                    REQUIRE(out == (value > 0 ? inf : -inf));
                }
            }
  }

  TEST_CASE("a NaN or infinite weight reaches its output in every row and no other output") {
    for (const auto& variant : implementations(&KernelTable::linear))
      for (const Route route : kRoutes)
        for (const int rows : {1, 31})
          for (const float value : {std::nanf(""), INFINITY}) {
            INFO(variant.name, name(route), " rows ", rows, " value ", value);
            LinearCase c({rows, 70, 9}, DType::bf16);
            std::fill(c.x.begin(), c.x.end(), 1.f);
            c.bf16_weight[4 * 70 + 69] = to_bf16(value);
            const Values y = c.run(variant.run, route);
            for (int r = 0; r < rows; ++r)
              for (int o = 0; o < 9; ++o) REQUIRE(std::isfinite(y[size_t(r) * 9 + o]) == (o != 4));
          }
  }

  TEST_CASE("subnormal values cost no more than their own size") {
    for (const auto& variant : variants(&KernelTable::linear))
      for (const Route route : kRoutes)
        for (const int rows : {1, 31}) {
          INFO(variant.name, name(route), " rows ", rows);
          LinearCase c({rows, 70, 9}, DType::bf16);
          Random random(7);
          for (float& v : c.x) v = random.normal() * (random.integer(0, 1) ? 0x1p-130f : 1.f);
          for (bf16& w : c.bf16_weight)
            w = to_bf16(random.normal() * (random.integer(0, 1) ? 0x1p-130f : 1.f));
          const Values y = c.run(variant.run, route), want = c.run(ref::linear, taken(variant.name, route));
          CHECK(relative_error(y, want) < 1e-5);
          for (float& v : c.x) v = 0x1p-130f;
          for (const float v : c.run(variant.run, route)) CHECK(std::abs(v) < 70 * 4 * 0x1p-126f);
        }
  }

  TEST_CASE("a row alone equals the same row among others, bit for bit") {
    const auto check = [](const auto& variant, DType type, Route route, int in_dim) {
      INFO(variant.name, name(route), " ", dtype_name(type), " in_dim ", in_dim);
      const LinearCase c({81, in_dim, 37}, type);
      Values alone;
      for (int r = 0; r < 81; ++r)
        for (const float v : c.run(variant.run, route, r, 1)) alone.push_back(v);
      for (const int rows : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 81})
        if (route == taken(variant.name, route) || rows < kLinearManyRows)
          CHECK(c.run(variant.run, route, 0, rows) == Values(alone.begin(), alone.begin() + rows * 37));
    };
    for (const auto& variant : variants(&KernelTable::linear)) {
      for (const int in_dim : {31, 520, 1029})
        for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
          check(variant, type, Route::exact, in_dim);
      for (const int in_dim : {31, 520, 2080}) check(variant, DType::bf16, Route::fast, in_dim);
    }
  }
}

}  // namespace dsa
