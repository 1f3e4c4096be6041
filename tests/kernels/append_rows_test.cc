#include <doctest/doctest.h>

#include "tests/support/pages.h"
#include "tests/support/queues.h"

using namespace dsa;
using namespace dsa::test;

TEST_SUITE("kernels/append_rows") {
  TEST_CASE("rows land at their positions, across page borders, and nowhere else") {
    Random random(1);
    const int dim = 7, stride = 9;
    Pages pages(random, {130, 200}, dim);
    const Pages before = pages;
    const std::vector<int32_t> sequence_of = {0, 0, 0, 0, 1, 1}, positions = {62, 63, 64, 65, 0, 199};
    const Values x = random.normals(positions.size() * stride);
    BackwardQueue queue;
    plain_kernels().append_rows(
        {x.data(), sequence_of.data(), positions.data(), pages.rows(), stride, int(positions.size())}, queue);

    Pages want = before;
    for (size_t t = 0; t < positions.size(); ++t)
      for (int d = 0; d < dim; ++d) want.row(sequence_of[t], positions[t])[d] = x[t * stride + d];
    CHECK(same_bits(pages.values(), want.values()));
  }

  TEST_CASE("a cache of bf16 rounds to nearest, ties to even") {
    Random random(1);
    const int dim = 7;
    Pages pages(random, {70}, dim);
    NarrowPages narrow_rows(pages);
    const Values x = random.normals(2 * dim);
    const std::vector<int32_t> sequence_of = {0, 0}, positions = {63, 64};
    BackwardQueue queue;
    plain_kernels().append_rows({x.data(), sequence_of.data(), positions.data(), narrow_rows.rows(), dim, 2},
                                queue);
    for (int p = 0; p < 70; ++p)
      for (int d = 0; d < dim; ++d) {
        const bool written = p == 63 || p == 64;
        const float want = written ? to_f32(to_bf16(x[(p - 63) * dim + d])) : pages.row(0, p)[d];
        CHECK(narrow_rows.rows().row(0, p)[d] == want);
      }
  }

  TEST_CASE("pages beyond 2 and 4 GiB, 2^32 floats, and page 65536 (IDX-16)") {
    if (!reaches_far_pages()) return;
    for (const auto layout : {FarPages::Layout::wide, FarPages::Layout::packed}) {
      Random random(2);
      const int length = 4 * kPageSize + 9, dim = 12;
      Pages pages(random, {length}, dim);
      FarPages far(pages, 0, layout);
      REQUIRE(far.mapped());
      const std::vector<int32_t> sequence_of(length, 0);
      std::vector<int32_t> positions(length);
      std::iota(positions.begin(), positions.end(), 0);
      const Values x = random.normals(size_t(length) * dim);
      SerialQueue queue;
      plain_kernels().append_rows({x.data(), sequence_of.data(), positions.data(), far.rows(), dim, length},
                                  queue);
      // Read back without the arithmetic under test.
      for (int p = 0; p < length; ++p)
        CHECK(same_bits(Values(far.address(p), far.address(p) + dim), part(x, p, dim)));
    }
  }
}
