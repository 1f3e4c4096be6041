#include <doctest/doctest.h>

#include <cmath>

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

  TEST_CASE("a cache of fp8 codes latents with a scale for 128 of them, and keeps the others as bf16") {
    for (const auto& [dim, coded] : {std::pair{576, 512}, {300, 300}, {141, 130}, {7, 5}, {512, 512}}) {
      INFO("coded ", coded, " of ", dim);
      Random random(uint64_t(1) + uint64_t(dim));
      Pages pages(random, {70, 130}, dim);
      const std::vector<int32_t> sequence_of = {0, 0, 1, 1}, positions = {63, 64, 0, 129};
      Values x = random.normals(4 * size_t(dim));
      for (int d = 0; d < dim; ++d) {
        x[size_t(d)] *= std::exp2(float(d % 40 - 20));  // subnormal codes
        x[size_t(dim + d)] = 0;
        x[size_t(2 * dim + d)] *= 1e30f;
      }
      // What is to lie there, by the arithmetic of Fp8Pages.
      Pages written = pages;
      for (size_t t = 0; t < 4; ++t)
        std::copy_n(x.begin() + int64_t(t) * dim, dim, written.row(sequence_of[t], positions[t]));
      const Fp8Pages want(written, coded);
      Fp8Pages cache(pages, coded);
      BackwardQueue queue;
      plain_kernels().append_rows({x.data(), sequence_of.data(), positions.data(), cache.rows(), dim, 4},
                                  queue);
      CHECK(cache.bytes() == want.bytes());
      for (size_t t = 0; t < 4; ++t)
        for (int d = 0; d < dim; ++d)
          REQUIRE(cache.rows().row(sequence_of[t], positions[t])[d] ==
                  written.row(sequence_of[t], positions[t])[d]);
    }
  }

  TEST_CASE("NaN and infinity stay what they are in a cache of fp8") {
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (const int at : {0, 130, 199}) {
        Random random(3);
        Pages pages(random, {5}, 210);
        Fp8Pages cache(pages, 200);
        Values x = random.normals(210);
        x[size_t(at)] = bad;
        const std::vector<int32_t> sequence_of = {0}, positions = {4};
        BackwardQueue queue;
        plain_kernels().append_rows({x.data(), sequence_of.data(), positions.data(), cache.rows(), 210, 1},
                                    queue);
        for (int d = 0; d < 210; ++d)
          CHECK(std::isfinite(cache.rows().row(0, 4)[d]) == (d >= 200 || d / 128 != at / 128));
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
