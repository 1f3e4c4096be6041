#include "kernels/mxfp4_linear/mxfp4_linear.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/thread_pool.h"
#include "tests/support/gpu_rounding.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

constexpr Route kRoutes[] = {Route::exact, Route::fast};
const char* name(Route route) { return route == Route::exact ? "exact" : "fast"; }

// What the format says, without arithmetic on bits.
double table_e2m1(int nibble) {
  const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return nibble < 8 ? magnitude[nibble] : -magnitude[nibble - 8];
}
double table_e8m0(int code) { return code == 255 ? std::nan("") : std::ldexp(1.0, code - 127); }

struct alignas(64) Line {
  uint8_t bytes[64];
};

// Groups of the given numbers of rows, one after the other in x and in y. Every block has a scale of its own.
struct Mxfp4Case {
  std::vector<int> rows;
  int in_dim, out_dim;
  Values x;
  std::vector<uint8_t> blocks, scales;
  size_t scales_begin = 0;
  int rows_max = 0;

  Mxfp4Case(std::vector<int> group_rows, int in, int out)
      : rows(std::move(group_rows)), in_dim(in), out_dim(out) {
    Random random(uint64_t(in) * 131 + uint64_t(out) * 7 + rows.size());
    x = poisoned(size_t(total()) * x_stride());
    for (int r = 0; r < total(); ++r)
      for (int i = 0; i < in; ++i) at(r, i) = random.normal();
    blocks.resize(rows.size() * matrix() / 2);
    scales.resize(rows.size() * matrix() / 32);
    for (uint8_t& byte : blocks) byte = uint8_t(random.integer(0, 255));
    for (uint8_t& code : scales) code = uint8_t(random.integer(120, 130));
  }
  int total() const { return std::accumulate(rows.begin(), rows.end(), 0); }
  size_t matrix() const { return size_t(in_dim) * out_dim; }
  size_t x_stride() const { return size_t(in_dim) + 5; }
  size_t y_stride() const { return size_t(out_dim) + 3; }
  float& at(int r, int i) { return x[size_t(r) * x_stride() + i]; }

  Values run(void (*kernel)(const Mxfp4LinearArgs&, Queue&), Route route) const {
    Values y = poisoned(size_t(total()) * y_stride());
    std::vector<Mxfp4LinearGroup> groups;
    int row = 0;
    for (size_t g = 0; g < rows.size(); row += rows[g++])
      groups.push_back({blocks.data() + g * matrix() / 2, scales.data() + scales_begin + g * matrix() / 32,
                        row, rows[g], y.data() + size_t(row) * y_stride()});
    std::vector<Line> workspace(mxfp4_linear_workspace_bytes(total(), in_dim) / 64 + 1);
    memset(static_cast<void*>(workspace.data()), 0xff, workspace.size() * 64);
    ThreadPool queue(3);
    kernel({x.data(), groups.data(), int(groups.size()), route == Route::fast ? workspace.data() : nullptr,
            int64_t(x_stride()), int64_t(y_stride()), total(), in_dim, out_dim, route, rows_max},
           queue);
    return y;
  }

  // The same rows rounded as the fast route of a variant says: multiples of max|x| / 255 over each block, or integers of
  // stretches.
  Mxfp4Case rounded(const std::string& variant) const {
    Mxfp4Case c = *this;
    if (variant == "cuda") {
      for (int r = 0; r < total(); ++r) round_for_mxfp4_on_gpu(&c.at(r, 0), in_dim);
      return c;
    }
    for (int r = 0; r < total(); ++r)
      for (int b = 0; b < in_dim; b += 32) {
        float largest = 0;
        for (int i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(c.at(r, i)));
        const float s = largest / 255;
        for (int i = b; i < b + 32; ++i) c.at(r, i) = s > 0 ? std::nearbyint(c.at(r, i) / s) * s : 0;
      }
    return c;
  }
};

struct Shape {
  int rows, in_dim, out_dim;
};
constexpr Shape kShapes[] = {{1, 32, 1},   {1, 64, 2},    {1, 96, 3},     {1, 4096, 4},  {1, 544, 5},
                             {1, 1024, 6}, {1, 160, 7},   {1, 2080, 8},   {1, 3584, 9},  {2, 96, 33},
                             {3, 224, 35}, {4, 4096, 9},  {5, 32, 1},     {6, 64, 9},    {7, 96, 31},
                             {8, 4096, 3}, {13, 512, 70}, {17, 2144, 33}, {49, 160, 5},  {200, 96, 34},
                             {1, 256, 16}, {1, 768, 48},  {1, 2304, 64},  {1, 7168, 16}, {9, 2048, 32}};

}  // namespace

TEST_SUITE("kernels/mxfp4_linear") {
  TEST_CASE("the reference gives the value worked out by hand; NUM-04: code 127 is 1") {
    Mxfp4Case c({1}, 64, 1);
    std::fill(c.blocks.begin(), c.blocks.end(), uint8_t(0));
    c.blocks[0] = 0x21, c.blocks[16] = 0xf2;  // 0.5, 1 in the first block; 1, -6 in the second
    c.scales = {127, 129};
    for (int i = 0; i < 64; ++i) c.at(0, i) = 0;
    c.at(0, 0) = 255, c.at(0, 1) = 2, c.at(0, 32) = 255, c.at(0, 33) = -3;  // s = 1 in both blocks
    for (const Route route : kRoutes)
      CHECK(c.run(ref::mxfp4_linear, route)[0] == 1221.5f);  // 127.5 + 2 + 4 * (255 + 18)
  }

  TEST_CASE("NUM-02: all scale codes and nibbles are decoded as the table in double says") {
    for (int code = 0; code < 256; ++code)
      for (int nibble = 0; nibble < 16; ++nibble) {
        const uint8_t bytes[16] = {uint8_t(nibble)}, scale = uint8_t(code);
        const float expected = float(table_e2m1(nibble) * table_e8m0(code));
        const float actual = mxfp4_value(bytes, &scale, 0);
        if (std::isnan(expected) ? !std::isnan(actual) : actual != expected) FAIL(code, " ", nibble);
      }
    CHECK(f32_to_bits(e8m0_to_f32(0)) == 0x00400000u);
  }

  TEST_CASE("NUM-02: the exact route of every variant decodes all of them too") {
    // Output `code` holds every nibble twice under that scale; row r picks column r with an activation of 1.
    Mxfp4Case c({32}, 32, 256);
    for (int code = 0; code < 256; ++code) {
      c.scales[size_t(code)] = uint8_t(code);
      for (int j = 0; j < 16; ++j) c.blocks[size_t(code) * 16 + j] = uint8_t(j | (15 - j) << 4);
    }
    for (int r = 0; r < 32; ++r)
      for (int i = 0; i < 32; ++i) c.at(r, i) = float(r == i);
    for (const auto& variant : variants(&KernelTable::mxfp4_linear)) {
      const Values y = c.run(variant.run, Route::exact);
      for (int code = 0; code < 256; ++code)
        for (int r = 0; r < 32; ++r) {
          INFO(variant.name, " code ", code, " column ", r);
          const int nibble = r % 2 ? 15 - r / 2 : r / 2;
          const float actual = y[size_t(r) * c.y_stride() + code];
          // Code 253 times 4 and code 254 times 2 are infinite: the zeros of the other rows make NaN of that.
          if (code == 255)
            REQUIRE(std::isnan(actual));
          else if (code >= 253)
            REQUIRE_FALSE(std::isfinite(actual));
          else
            REQUIRE(actual == float(table_e2m1(nibble) * table_e8m0(code)));
        }
    }
  }

  TEST_CASE("NUM-02: codes 253 and 254 give their largest finite values, infinity above them, never NaN") {
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear))
      for (const int code : {253, 254})
        for (int nibble = 0; nibble < 16; ++nibble)
          for (const int rows : {1, 7}) {
            INFO(variant.name, " code ", code, " nibble ", nibble);
            Mxfp4Case c({rows}, 32, 1);
            std::fill(c.blocks.begin(), c.blocks.end(), uint8_t(0));
            c.blocks[3] = uint8_t(nibble), c.scales[0] = uint8_t(code);
            std::fill(c.x.begin(), c.x.end(), 1.f);
            const float expected = float(table_e2m1(nibble) * table_e8m0(code));
            const float actual = c.run(variant.run, Route::exact)[0];
            // A GPU multiplies the weight by pieces of x, and those of 1 are 1, 0 and 0.
            CHECK((actual == expected ||
                   (variant.name == "cuda" && std::isinf(expected) && std::isnan(actual))));
          }
  }

  TEST_CASE("NUM-02: on the fast route, code 255 makes its output NaN and no other; code 0 does not vanish") {
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear))
      for (const int rows : {1, 7}) {
        INFO(variant.name, " rows ", rows);
        for (const auto& [in_dim, out_dim] : {std::pair{96, 3}, {256, 16}}) {
          Mxfp4Case c({rows}, in_dim, out_dim);
          const int blocks = in_dim / 32;
          c.scales[1] = 255;  // output 0
          for (int b = 0; b < blocks; ++b) c.scales[size_t(blocks + b)] = 0;
          for (int r = 0; r < rows; ++r)
            for (int i = 0; i < in_dim; ++i) c.at(r, i) *= 0x1p100f;
          const Values y = c.run(variant.run, Route::fast),
                       want = c.rounded(variant.name).run(ref::mxfp4_linear, Route::exact);
          for (int r = 0; r < rows; ++r) {
            const size_t at = size_t(r) * c.y_stride();
            CHECK(std::isnan(y[at]));
            CHECK(y[at + 1] != 0);
            CHECK(std::abs(y[at + 1] - want[at + 1]) <= 1e-5f * std::abs(want[at + 1]) + 1e-12f);
            CHECK(std::isfinite(y[at + 2]));
          }
        }
      }
  }

  TEST_CASE("NUM-05: the low nibble is the even column") {
    Mxfp4Case c({1}, 32, 1);
    std::fill(c.blocks.begin(), c.blocks.end(), uint8_t(0x21));  // 0.5 in even columns, 1 in odd ones
    c.scales[0] = 127;
    for (int i = 0; i < 32; ++i) c.at(0, i) = float(i + 1);
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear)) {
      INFO(variant.name);
      CHECK(c.run(variant.run, Route::exact)[0] == 400);  // 0.5 * (1 + 3 + ... + 31) + (2 + 4 + ... + 32)
      CHECK(std::abs(c.run(variant.run, Route::fast)[0] - 400) < 32 * 0.75 * 0.063);  // swapped: 392
    }
  }

  TEST_CASE("NUM-03, NUM-11, NUM-13: every variant agrees with the reference at every shape, exact") {
    for (const Shape shape : kShapes)
      for (const auto& variant : variants(&KernelTable::mxfp4_linear)) {
        INFO(variant.name, " at ", shape.rows, " x ", shape.in_dim, " -> ", shape.out_dim);
        const Mxfp4Case c({shape.rows}, shape.in_dim, shape.out_dim);
        CHECK(relative_error(c.run(variant.run, Route::exact), c.run(ref::mxfp4_linear, Route::exact)) <
              1e-5);
      }
  }

  TEST_CASE("NUM-03, NUM-11, NUM-13: the fast route is the exact one over rounded activations") {
    for (const Shape shape : kShapes) {
      const Mxfp4Case c({shape.rows}, shape.in_dim, shape.out_dim);
      for (const auto& variant : implementations(&KernelTable::mxfp4_linear)) {
        INFO(variant.name, " at ", shape.rows, " x ", shape.in_dim, " -> ", shape.out_dim);
        const Values want = c.rounded(variant.name).run(ref::mxfp4_linear, Route::exact);
        CHECK(relative_error(c.run(variant.run, Route::fast), want) < 1e-5);
      }
    }
  }

  TEST_CASE("the fast route is off by at most half a step per activation") {
    // |error| <= sum over blocks of s / 2 * sum of |W|, with s = max|x| / 255.
    Mxfp4Case c({3}, 512, 40);
    const Values exact = c.run(ref::mxfp4_linear, Route::exact);
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear)) {
      INFO(variant.name);
      const Values fast = c.run(variant.run, Route::fast);
      for (int r = 0; r < 3; ++r)
        for (int o = 0; o < 40; ++o) {
          double bound = 0;
          for (int b = 0; b < 512; b += 32) {
            double largest = 0, weights = 0;
            for (int i = b; i < b + 32; ++i) {
              largest = std::max(largest, std::abs(double(c.at(r, i))));
              weights += std::abs(mxfp4_value(c.blocks.data() + o * 256, c.scales.data() + o * 16, i));
            }
            bound += largest / 255 / 2 * weights;
          }
          const size_t at = size_t(r) * c.y_stride() + size_t(o);
          CHECK(std::abs(double(fast[at]) - exact[at]) <= bound * 1.0001);
        }
    }
  }

  TEST_CASE("the fast route with zero, tiny and broken activations") {
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear))
      for (const int rows : {1, 9}) {
        INFO(variant.name, " rows ", rows);
        Mxfp4Case c({rows}, 64, 5);
        const auto fill = [&](float value) {
          for (int r = 0; r < rows; ++r)
            for (int i = 0; i < 32; ++i) c.at(r, i) = value;
        };
        for (const float value : {0.f, 1e-44f, 1e-38f}) {
          fill(value);
          CHECK(relative_error(c.run(variant.run, Route::fast), c.run(ref::mxfp4_linear, Route::exact)) <
                0.05);
        }
        for (const float value : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
          c.at(0, 40) = value;
          const Values y = c.run(variant.run, Route::fast);
          for (int o = 0; o < 5; ++o) CHECK(std::isnan(y[size_t(o)]));
          for (int r = 1; r < rows; ++r) CHECK(std::isfinite(y[size_t(r) * c.y_stride()]));
        }
      }
  }

  TEST_CASE("groups of different sizes, none among them, on both routes") {
    for (const std::vector<int>& rows :
         {std::vector<int>{0}, {0, 0, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 3, 17, 0, 1, 6}, {210, 1, 0, 4}})
      for (const Route route : kRoutes)
        for (const auto& variant : variants(&KernelTable::mxfp4_linear)) {
          INFO(variant.name, " ", name(route), ", ", rows.size(), " groups, the first of ", rows[0]);
          for (const auto& [in_dim, out_dim] : {std::pair{160, 37}, {512, 16}}) {
            Mxfp4Case c(rows, in_dim, out_dim);
            c.rows_max = *std::max_element(rows.begin(), rows.end());
            const Mxfp4Case seen = route == Route::exact ? c : c.rounded(variant.name);
            CHECK(relative_error(c.run(variant.run, route), seen.run(ref::mxfp4_linear, Route::exact)) <
                  1e-5);
          }
        }
  }

  TEST_CASE("groups may share rows of x") {
    for (const Route route : kRoutes)
      for (const auto& variant : implementations(&KernelTable::mxfp4_linear)) {
        INFO(variant.name, " ", name(route));
        const Mxfp4Case c({6}, 96, 20);
        const Values want = c.run(variant.run, route);
        Values y = poisoned(2 * 6 * c.y_stride());
        const std::vector<Mxfp4LinearGroup> groups = {
            {c.blocks.data(), c.scales.data(), 0, 6, y.data()},
            {c.blocks.data(), c.scales.data(), 2, 3, y.data() + 6 * c.y_stride()}};
        std::vector<Line> workspace(mxfp4_linear_workspace_bytes(6, 96) / sizeof(Line) + 1);
        SerialQueue queue;
        variant.run({c.x.data(), groups.data(), 2, workspace.data(), int64_t(c.x_stride()),
                     int64_t(c.y_stride()), 6, 96, 20, route},
                    queue);
        for (size_t i = 0; i < 6 * c.y_stride(); ++i) CHECK(f32_to_bits(y[i]) == f32_to_bits(want[i]));
        for (size_t i = 0; i < 3 * c.y_stride(); ++i)
          CHECK(f32_to_bits(y[6 * c.y_stride() + i]) == f32_to_bits(want[2 * c.y_stride() + i]));
      }
  }

  TEST_CASE("scales may lie at any address, with the same bits") {
    for (const auto& variant : implementations(&KernelTable::mxfp4_linear))
      for (const int rows : {1, 2}) {
        INFO(variant.name, " rows ", rows);
        Mxfp4Case c({rows}, 2304, 32);
        const Values want = c.run(variant.run, Route::fast);
        c.scales.insert(c.scales.begin(), 3, uint8_t(255));
        c.scales_begin = 3;
        CHECK(same_bits(c.run(variant.run, Route::fast), want));
      }
  }

  TEST_CASE("a row alone equals the same row among others, bit for bit") {
    for (const Route route : kRoutes)
      for (const auto& variant : variants(&KernelTable::mxfp4_linear))
        for (const auto& [in_dim, out_dim] : {std::pair{96, 37}, {640, 37}, {2208, 37}, {2816, 32}}) {
          INFO(variant.name, " ", name(route), " in_dim ", in_dim);
          Mxfp4Case c({17}, in_dim, out_dim);
          for (int r = 0; r < 17; ++r)  // rows of very different size
            for (int i = 0; i < in_dim; ++i) c.at(r, i) *= std::ldexp(1.f, r - 8);
          Values alone;
          for (int r = 0; r < 17; ++r) {
            Mxfp4Case one = c;
            one.rows = {1};
            one.x.assign(c.x.begin() + r * int64_t(c.x_stride()),
                         c.x.begin() + (r + 1) * int64_t(c.x_stride()));
            for (const float v : one.run(variant.run, route)) alone.push_back(v);
          }
          for (int rows = 2; rows <= 17; ++rows) {
            Mxfp4Case some = c;
            some.rows = {rows};
            CHECK(same_bits(some.run(variant.run, route),
                            Values(alone.begin(), alone.begin() + rows * int64_t(c.y_stride()))));
          }
        }
  }
}

}  // namespace dsa
