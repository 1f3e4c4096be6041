#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Values& table, int table_rows, int table_columns, int dim, const std::vector<Grid>& grids) {
  int64_t cells = 0;
  for (const Grid& g : grids) cells += int64_t(g.rows) * g.columns;
  Values x(size_t(cells) * dim, 0.f);
  BackwardQueue queue;
  plain_kernels().grid_embedding(
      {table.data(), DType::f32, grids.data(), x.data(), int(grids.size()), table_rows, table_columns, dim},
      queue);
  return x;
}

}  // namespace

TEST_SUITE("kernels/grid_embedding") {
  TEST_CASE("a grid of the table's size gets the table, added to what is there") {
    Random random(1);
    const Values table = random.normals(5 * 7 * 3);
    CHECK(run(table, 5, 7, 3, {{0, 5, 7}}) == table);

    Values x(table.size(), 10.f);
    const std::vector<Grid> grids = {{0, 5, 7}};
    SerialQueue queue;
    plain_kernels().grid_embedding({table.data(), DType::f32, grids.data(), x.data(), 1, 5, 7, 3}, queue);
    for (size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(10 + table[i]));
  }

  TEST_CASE("half-pixel centres, bilinear, clamped at both ends: by hand") {
    // Four cells over two entries: (i + 0.5) / 2 - 0.5 = -0.25 (clamped to 0), 0.25, 0.75, 1.25 (neighbour clamped).
    CHECK(relative_error(run({0, 1}, 1, 2, 1, {{0, 1, 4}}), {0, 0.25f, 0.75f, 1}) < 1e-6);
    CHECK(relative_error(run({0, 1}, 2, 1, 1, {{0, 4, 1}}), {0, 0.25f, 0.75f, 1}) < 1e-6);
    // Two cells over four: 0.5 and 2.5. No antialias: only the two neighbours count.
    CHECK(relative_error(run({0, 10, 200, 3000}, 1, 4, 1, {{0, 1, 2}}), {5, 1600}) < 1e-6);
    // Rows come first in the table: 2 x 2 entries over 1 x 1 is their mean.
    CHECK(relative_error(run({1, 2, 4, 8}, 2, 2, 1, {{0, 1, 1}}), {3.75f}) < 1e-6);
  }

  TEST_CASE(
      "grids follow each other, each stretched on its own; a bf16 table gives what its values give in f32") {
    Random random(2);
    const std::vector<bf16> narrow = random.bf16_normals(6 * 4 * 5);
    Values table;
    for (const bf16 v : narrow) table.push_back(to_f32(v));
    const std::vector<Grid> grids = {{0, 2, 6}, {12, 8, 2}, {28, 1, 1}};
    const Values all = run(table, 6, 4, 5, grids);
    const Values second = run(table, 6, 4, 5, {{0, 8, 2}});
    CHECK(Values(all.begin() + 12 * 5, all.begin() + 28 * 5) == second);

    Values x(all.size(), 0.f);
    BackwardQueue queue;
    plain_kernels().grid_embedding({narrow.data(), DType::bf16, grids.data(), x.data(), 3, 6, 4, 5}, queue);
    CHECK(x == all);
  }
}
