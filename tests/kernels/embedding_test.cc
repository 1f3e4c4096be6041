#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/embedding") {
  TEST_CASE("rows of a bf16 and of an f32 table, repeated ids included") {
    Random random(1);
    const int vocab = 9, dim = 13;
    const Values table = random.normals(vocab * dim);
    const std::vector<bf16> narrow = random.bf16_normals(vocab * dim);
    const std::vector<int32_t> ids = {8, 0, 3, 3};
    BackwardQueue queue;
    Values y = poisoned(ids.size() * dim), y_narrow = y;
    plain_kernels().embedding({table.data(), DType::f32, ids.data(), y.data(), 4, dim}, queue);
    plain_kernels().embedding({narrow.data(), DType::bf16, ids.data(), y_narrow.data(), 4, dim}, queue);
    for (size_t t = 0; t < ids.size(); ++t)
      for (int d = 0; d < dim; ++d) {
        CHECK(y[t * dim + d] == table[ids[t] * dim + d]);
        CHECK(y_narrow[t * dim + d] == to_f32(narrow[ids[t] * dim + d]));
      }
  }
}
