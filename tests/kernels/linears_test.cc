#include "kernels/linears/linears.h"

#include <doctest/doctest.h>

#include "kernels/add/add.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

enum class Before { nothing, norm, activation };

struct Size {
  int in_dim, out_dim;
  DType type = DType::bf16;
  bool addend = false;
};

// Products with rows that lie apart, NaN between them.
struct LinearsCase {
  Before before;
  int rows;
  std::vector<Size> sizes;
  std::vector<Values> x, addends, f32;
  std::vector<std::vector<bf16>> narrow;
  std::vector<std::vector<uint8_t>> codes;
  std::vector<Values> scales;
  Values norm, up;

  LinearsCase(Before b, int r, std::vector<Size> s, uint64_t seed = 1)
      : before(b), rows(r), sizes(std::move(s)) {
    Random random(seed);
    for (const Size& size : sizes) {
      const size_t matrix = size_t(size.in_dim) * size.out_dim;
      x.push_back(apart(random, size.in_dim));
      addends.push_back(apart(random, size.out_dim));
      f32.push_back(random.normals(size.type == DType::f32 ? matrix : 0));
      narrow.push_back(random.bf16_normals(size.type == DType::bf16 ? matrix : 0));
      codes.emplace_back(size.type == DType::f8_e4m3 ? matrix : 0);
      for (uint8_t& code : codes.back()) code = uint8_t(random.integer(0x20, 0x50));
      scales.push_back(random.normals(size_t((size.in_dim + 127) / 128) * ((size.out_dim + 127) / 128)));
    }
    norm = random.normals(sizes[0].in_dim);
    up = apart(random, sizes[0].in_dim);
  }
  static constexpr int kApart = 4;  // floats between rows
  Values apart(Random& random, int dim) const {
    Values values = poisoned(size_t(rows) * (dim + kApart));
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < dim; ++i) values[size_t(r) * (dim + kApart) + i] = random.normal();
    return values;
  }

  struct Outcome {
    Values h;
    std::vector<Values> y;
  };
  // Rows [first, first + count).
  Outcome run(void (*kernel)(const LinearsArgs&, Queue&), int first = 0, int count = -1,
              bool in_place = false) {
    count = count < 0 ? rows : count;
    Outcome outcome{poisoned(before == Before::norm ? size_t(count) * sizes[0].in_dim : 0), {}};
    LinearsArgs args = {};
    args.rows = count;
    if (before == Before::norm) args.norm = norm.data(), args.h = outcome.h.data(), args.eps = 1e-5f;
    if (before == Before::activation) {
      args.up = up.data() + size_t(first) * (sizes[0].in_dim + kApart);
      args.form = {ActivationKind::swiglu, 0, 0, 2};
    }
    for (const Size& size : sizes) outcome.y.push_back(poisoned(size_t(count) * (size.out_dim + kApart)));
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Size& size = sizes[i];
      const Values& from = before == Before::norm ? x[0] : x[i];
      const int64_t x_stride = size.in_dim + kApart, y_stride = size.out_dim + kApart;
      const float* addend = addends[i].data() + first * y_stride;
      if (in_place && size.addend) {
        std::copy_n(addend, outcome.y[i].size(), outcome.y[i].data());
        addend = outcome.y[i].data();
      }
      const void* weight = size.type == DType::bf16  ? static_cast<const void*>(narrow[i].data())
                           : size.type == DType::f32 ? static_cast<const void*>(f32[i].data())
                                                     : codes[i].data();
      args.products[args.num_products++] = {from.data() + first * x_stride,
                                            weight,
                                            size.type,
                                            outcome.y[i].data(),
                                            x_stride,
                                            y_stride,
                                            size.in_dim,
                                            size.out_dim,
                                            scales[i].data(),
                                            size.addend ? addend : nullptr,
                                            y_stride};
    }
    SerialQueue queue;
    kernel(args, queue);
    return outcome;
  }
};

const std::vector<LinearsCase>& cases() {
  static const auto& all = *new std::vector<LinearsCase>{
      {Before::nothing, 1, {{8, 1}}},
      {Before::nothing, 3, {{136, 33}, {264, 5, DType::bf16, true}, {24, 70}}},
      {Before::nothing, 8, {{1032, 18, DType::f32}, {40, 300, DType::f32, true}}},
      {Before::nothing, 2, {{144, 40, DType::f8_e4m3}, {272, 140, DType::f8_e4m3, true}}},
      {Before::nothing,
       2,
       {{144, 40, DType::f8_e4m3}, {136, 20}, {16, 9, DType::f32, true}}},  // of all types
      {Before::nothing, 2, {{13, 20}, {17, 3, DType::bf16, true}}},         // not aligned
      {Before::norm, 1, {{2304, 50}, {2304, 17}, {2304, 130}}},
      {Before::norm, 5, {{520, 50}, {520, 17, DType::f32}, {520, 130, DType::bf16, true}}},
      {Before::norm, 2, {{21, 5}, {21, 7}}},
      {Before::activation, 1, {{1024, 100, DType::bf16, true}}},
      {Before::activation, 6, {{392, 31}}},
      {Before::activation, 3, {{31, 8, DType::f32, true}}},
      // Rows of which a GPU keeps all, or some inputs at a time, for one tile or for several.
      {Before::norm, 8, {{2312, 4300}, {2312, 33}}},
      {Before::norm, 7, {{7176, 50}, {7176, 17}}},
      {Before::nothing, 8, {{5128, 37, DType::bf16, true}, {2304, 70}}},
      {Before::activation, 8, {{4104, 4300, DType::bf16, true}}},
  };
  return all;
}

}  // namespace

TEST_SUITE("kernels/linears") {
  TEST_CASE("the values worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::linears)) {
      INFO(variant.name);
      LinearsCase c(Before::norm, 1, {{8, 1, DType::f32}, {8, 2, DType::f32, true}});
      std::fill(c.x[0].begin(), c.x[0].end(), 3.f);  // normed: 1
      std::fill(c.norm.begin(), c.norm.end(), 2.f);
      for (size_t i = 0; i < 8; ++i) c.f32[0][i] = float(i), c.f32[1][i] = 1, c.f32[1][8 + i] = -1;
      c.addends[1][0] = 100, c.addends[1][1] = 0.5f;
      const auto outcome = c.run(variant.run);
      CHECK(relative_error(outcome.h, Values(8, 2.f)) < 1e-5);
      CHECK(std::abs(outcome.y[0][0] - 56) < 1e-3);
      CHECK(std::abs(outcome.y[1][0] - 116) < 1e-3);
      CHECK(std::abs(outcome.y[1][1] + 15.5) < 1e-3);
    }
  }

  TEST_CASE("every variant agrees with the reference, and y may be its addend") {
    for (const auto& variant : implementations(&KernelTable::linears))
      for (size_t i = 0; i < cases().size(); ++i) {
        INFO(variant.name, " case ", i);
        LinearsCase c = cases()[i];
        const auto actual = c.run(variant.run), expected = c.run(ref::linears),
                   in_place = c.run(variant.run, 0, -1, true);
        CHECK(relative_error(actual.h, expected.h) < 1e-6);
        for (size_t p = 0; p < c.sizes.size(); ++p) {
          INFO("product ", p);
          const int dim = c.sizes[p].out_dim, stride = dim + LinearsCase::kApart;
          CHECK(relative_error(actual.y[p], expected.y[p]) < 1e-5);
          for (int r = 0; r < c.rows; ++r)
            CHECK(same_bits(
                Values(&actual.y[p][size_t(r) * stride], &actual.y[p][size_t(r) * stride] + dim),
                Values(&in_place.y[p][size_t(r) * stride], &in_place.y[p][size_t(r) * stride] + dim)));
        }
      }
  }

  TEST_CASE("a row alone equals the same row among others, bit for bit") {
    for (const auto& variant : implementations(&KernelTable::linears))
      for (size_t i = 0; i < cases().size(); ++i) {
        INFO(variant.name, " case ", i);
        LinearsCase c = cases()[i];
        const auto all = c.run(variant.run);
        for (int r = 0; r < c.rows; ++r) {
          const auto one = c.run(variant.run, r, 1);
          for (size_t p = 0; p < c.sizes.size(); ++p)
            CHECK(same_bits(one.y[p], part(all.y[p], r, one.y[p].size())));
        }
      }
  }

  TEST_CASE("the bits are those of the operators one after the other") {
    for (const KernelVariant& v : kernel_variants()) {
      if (!device_kernels()) continue;  // references differ in nothing else
      LinearsCase c(Before::norm, 3, {{648, 37, DType::bf16, true}});
      const auto fused = c.run(v.table.linears);
      Values h = poisoned(fused.h.size()), y = poisoned(3 * 37), sum = poisoned(3 * 37);
      SerialQueue queue;
      v.table.rms_norm({c.x[0].data(), c.norm.data(), h.data(), 652, 648, 3, 648, 1e-5f}, queue);
      v.table.linear({h.data(), c.narrow[0].data(), DType::bf16, y.data(), 648, 37, 3, 648, 37}, queue);
      CHECK(same_bits(h, fused.h));
      for (int r = 0; r < 3; ++r) {
        v.table.add({&c.addends[0][size_t(r) * 41], &y[size_t(r) * 37], &sum[size_t(r) * 37], 37}, queue);
        CHECK(same_bits(part(sum, r, 37),
                        Values(&fused.y[0][size_t(r) * 41], &fused.y[0][size_t(r) * 41] + 37)));
      }
    }
  }
}

}  // namespace dsa
