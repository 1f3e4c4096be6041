#include "kernels/expert_linear/expert_linear.h"

#include <doctest/doctest.h>

#include <numeric>

#include "backend/cpu/thread_pool.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

// Groups of the given numbers of rows, one after the other in x and in y, each with a matrix of its own.
struct ExpertLinearCase {
  std::vector<int> rows;
  int in_dim, out_dim;
  DType type;
  Values x, f32_weight;
  std::vector<bf16> bf16_weight;
  std::vector<uint8_t> fp8_weight;
  Values scales;

  ExpertLinearCase(std::vector<int> group_rows, int in, int out, DType t)
      : rows(std::move(group_rows)), in_dim(in), out_dim(out), type(t) {
    Random random(uint64_t(in * 31 + out));
    x = random.normals(size_t(total()) * x_stride());
    f32_weight = random.normals(rows.size() * size_t(in) * out);
    bf16_weight = random.bf16_normals(rows.size() * size_t(in) * out);
    fp8_weight.resize(f32_weight.size());
    for (uint8_t& code : fp8_weight) code = uint8_t(random.integer(0, 0x7e) | random.integer(0, 1) << 7);
    scales.resize(rows.size() * scale_count());
    for (float& scale : scales) scale = random.uniform(0.001f, 0.02f);
  }
  int total() const { return std::accumulate(rows.begin(), rows.end(), 0); }
  size_t scale_count() const { return size_t((in_dim + 127) / 128) * size_t((out_dim + 127) / 128); }
  size_t x_stride() const { return size_t(in_dim) + 3; }
  size_t y_stride() const { return size_t(out_dim) + 2; }

  Values run(void (*kernel)(const ExpertLinearArgs&, Queue&)) const {
    Values y = poisoned(size_t(total()) * y_stride());
    std::vector<ExpertLinearGroup> groups;
    int row = 0;
    for (size_t g = 0; g < rows.size(); row += rows[g++]) {
      const size_t begin = g * size_t(in_dim) * out_dim;
      const void* weight = type == DType::bf16      ? static_cast<const void*>(bf16_weight.data() + begin)
                           : type == DType::f8_e4m3 ? static_cast<const void*>(fp8_weight.data() + begin)
                                                    : static_cast<const void*>(f32_weight.data() + begin);
      groups.push_back(
          {weight, row, rows[g], y.data() + size_t(row) * y_stride(), scales.data() + g * scale_count()});
    }
    ThreadPool queue(3);
    kernel({x.data(), groups.data(), int(groups.size()), type, int64_t(x_stride()), int64_t(y_stride()),
            in_dim, out_dim},
           queue);
    return y;
  }
};

}  // namespace

TEST_SUITE("kernels/expert_linear") {
  TEST_CASE("the reference gives the value worked out by hand") {
    ExpertLinearCase c({1, 0, 1}, 2, 1, DType::f32);
    c.x = {1, 2, 0, 0, 0, 3, 4, 0, 0, 0}, c.f32_weight = {5, 6, 9, 9, -1, 1};
    const Values y = c.run(ref::expert_linear);
    CHECK(y[0] == 17);            // 5 + 12
    CHECK(y[c.y_stride()] == 1);  // -3 + 4, with the third matrix
  }

  TEST_CASE("every variant agrees with the reference") {
    for (const std::vector<int>& rows :
         {std::vector<int>{1}, {0, 0}, {1, 1, 1, 1}, {0, 3, 0, 17, 1}, {80, 2, 0, 5}, {200}})
      for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3})
        for (const auto& [in_dim, out_dim] : {std::pair{75, 35}, {140, 131}})
          for (const auto& variant : variants(&KernelTable::expert_linear)) {
            INFO(variant.name, " ", dtype_name(type), ", ", rows.size(), " groups, the first of ", rows[0]);
            const ExpertLinearCase c(rows, in_dim, out_dim, type);
            CHECK(relative_error(c.run(variant.run), c.run(ref::expert_linear)) < 1e-5);
          }
  }

  TEST_CASE("a group alone equals the same group among others, bit for bit") {
    for (const auto& variant : variants(&KernelTable::expert_linear)) {
      INFO(variant.name);
      const ExpertLinearCase all({5, 1, 33}, 75, 35, DType::bf16);
      const Values expected = all.run(variant.run);
      ExpertLinearCase last({33}, 75, 35, DType::bf16);
      last.x.assign(all.x.begin() + 6 * int64_t(all.x_stride()), all.x.end());
      last.bf16_weight.assign(all.bf16_weight.end() - 75 * 35, all.bf16_weight.end());
      const Values actual = last.run(variant.run);
      for (size_t r = 0; r < 33; ++r)
        for (size_t o = 0; o < 35; ++o)
          REQUIRE(actual[r * all.y_stride() + o] == expected[(6 + r) * all.y_stride() + o]);
    }
  }
}

}  // namespace dsa
