#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/add_bias") {
  TEST_CASE("one bias for all rows, or one for each run of rows; gaps between rows stay") {
    for (const auto& variant : implementations(&KernelTable::add_bias)) {
      INFO(variant.name);
      const Values bias = {1, 2, 10, 20, 100, 200};
      const std::vector<int32_t> offsets = {0, 1, 1, 3};
      BackwardQueue queue;
      Values y = {0, 0, -7, 1, 1, -7, 2, 2, -7};
      variant.run({bias.data(), DType::f32, nullptr, y.data(), 3, 0, 3, 1, 1, 2}, queue);
      CHECK(y == Values{1, 2, -7, 2, 3, -7, 3, 4, -7});
      variant.run({bias.data(), DType::f32, offsets.data(), y.data(), 3, 0, 3, 3, 1, 2}, queue);
      CHECK(y == Values{2, 4, -7, 102, 203, -7, 103, 204, -7});
    }
  }

  TEST_CASE("rows in parts that lie apart") {
    for (const auto& variant : implementations(&KernelTable::add_bias)) {
      INFO(variant.name);
      const Values bias = {1, 2, 10, 20};
      Values y = {0, 0, 1, 1, -7, 2, 2, 3, 3, -7};  // part after part, two rows in each
      BackwardQueue queue;
      variant.run({bias.data(), DType::f32, nullptr, y.data(), 2, 5, 2, 1, 2, 2}, queue);
      CHECK(y == Values{1, 2, 2, 3, -7, 12, 22, 13, 23, -7});
    }
  }

  TEST_CASE("a bf16 bias is exact") {
    Random random(2);
    const std::vector<bf16> bias = random.bf16_normals(37);
    Values y(37, 0.f);
    SerialQueue queue;
    plain_kernels().add_bias({bias.data(), DType::bf16, nullptr, y.data(), 37, 0, 1, 1, 1, 37}, queue);
    for (size_t i = 0; i < 37; ++i) CHECK(y[i] == to_f32(bias[i]));
  }
}
