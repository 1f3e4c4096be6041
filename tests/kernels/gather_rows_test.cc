#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/gather_rows") {
  TEST_CASE("rows in the order asked for, repeated ones included") {
    Random random(1);
    const int dim = 13;
    const Values x = random.normals(9 * dim);
    const std::vector<int32_t> rows = {8, 0, 3, 3, 7};
    Values y = poisoned(rows.size() * dim);
    BackwardQueue queue;
    plain_kernels().gather_rows({x.data(), rows.data(), y.data(), int64_t(rows.size()), dim}, queue);
    for (size_t i = 0; i < rows.size(); ++i) CHECK(part(y, i, dim) == part(x, size_t(rows[i]), dim));
  }
}
