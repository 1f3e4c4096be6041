#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/pages.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

constexpr int kDim = 5;

// One sequence that grows step by step; its pools lie in pages with few rows.
struct Pool {
  int group, dim, position = 0;
  Values places, open, next_open, pages;
  std::vector<int32_t> table, visible;
  CacheFormat format = CacheFormat::f32;

  Pool(int group_, int dim_, int tokens) : group(group_), dim(dim_) {
    places = Random(7).normals(size_t(group) * dim);
    open = next_open = poisoned(size_t(group - 1) * 2 * dim);
    const int num_pages = (tokens + kPageSize - 1) / kPageSize;
    pages = poisoned(size_t(num_pages) * kPageSize / group * dim);
    for (int i = num_pages - 1; i >= 0; --i) table.push_back(i);
  }
  PagedRows rows() {
    const int page_rows = kPageSize / group;
    return {pages.data(), size_t(page_rows) * dim * sizeof(float),
            table.data(), int(table.size()),
            dim,          page_rows,
            format};
  }
  // Commits the step unless told otherwise.
  void run(void (*kernel)(const PoolKeysArgs&, Queue&), const Values& keys, const Values& gates, int count,
           bool commit = true) {
    const size_t first = size_t(position) * dim;
    const std::vector<PoolSequence> sequences = {{0, count, position, open.data(), next_open.data()}};
    visible.assign(size_t(count), -1);
    BackwardQueue queue;
    kernel({keys.data() + first, gates.data() + first, places.data(), sequences.data(), rows(),
            visible.data(), dim, dim, 1, group, dim},
           queue);
    if (!commit) return;
    position += count;
    open.swap(next_open);
  }
};

}  // namespace

TEST_SUITE("kernels/pool_keys") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::pool_keys)) {
      INFO(variant.name);
      Pool c(2, 2, 4);
      c.places = {0, 0, std::log(3.f), 0};
      c.run(variant.run, {1, 2, 5, 4, 9, 9}, {0, 1, 0, 1, 0, 0}, 3);
      CHECK(c.rows().row(0, 0)[0] == doctest::Approx(0.25 * 1 + 0.75 * 5));  // a gate alone leaves the places
      CHECK(c.rows().row(0, 0)[1] == doctest::Approx(3));
      CHECK(c.visible == std::vector<int32_t>{0, 1, 1});
      CHECK(c.open == Values{9, 9, 0, 0});
    }
  }

  TEST_CASE("however the tokens are cut into steps, the pools have the same bits") {
    const int tokens = 2 * kPageSize + 7;
    for (const auto& variant : implementations(&KernelTable::pool_keys))
      for (const int group : {1, 2, 4, 16, 64}) {
        INFO(variant.name, " group ", group);
        Random random(uint64_t(group) + 1);
        const Values keys = random.normals(size_t(tokens) * kDim),
                     gates = random.normals(size_t(tokens) * kDim, 3);
        Pool whole(group, kDim, tokens);
        whole.run(variant.run, keys, gates, tokens);
        for (int t = 0; t < tokens; ++t) CHECK(whole.visible[t] == (t + 1) / group);
        for (const int step : {1, 3, 5, 17, 65}) {
          INFO("step ", step);
          Pool parts(group, kDim, tokens);
          while (parts.position < tokens) {
            // A step that is not committed leaves nothing behind.
            parts.run(variant.run, gates, keys, std::min(step + 2, tokens - parts.position), false);
            parts.run(variant.run, keys, gates, std::min(step, tokens - parts.position));
          }
          for (int p = 0; p < tokens / group; ++p) {
            const float *a = parts.rows().values<float>(0, p), *b = whole.rows().values<float>(0, p);
            CHECK(same_bits(Values(a, a + kDim), Values(b, b + kDim)));
          }
          const size_t used = size_t(tokens % group) * 2 * kDim;
          CHECK(Values(parts.open.begin(), parts.open.begin() + used) ==
                Values(whole.open.begin(), whole.open.begin() + used));
        }
      }
  }

  TEST_CASE("a cache of bf16 holds the pools rounded") {
    const int tokens = kPageSize + 9, group = 4;
    for (const auto& variant : implementations(&KernelTable::pool_keys)) {
      INFO(variant.name);
      Random random(6);
      const Values keys = random.normals(size_t(tokens) * kDim),
                   gates = random.normals(size_t(tokens) * kDim);
      Pool exact(group, kDim, tokens), rounded(group, kDim, tokens);
      exact.run(variant.run, keys, gates, tokens);
      rounded.format = CacheFormat::bf16;
      rounded.run(variant.run, keys, gates, tokens);
      for (int p = 0; p < tokens / group; ++p)
        for (int d = 0; d < kDim; ++d)
          CHECK(rounded.rows().row(0, p)[d] == to_f32(to_bf16(exact.rows().row(0, p)[d])));
    }
  }

  TEST_CASE("gates far beyond the range of exp") {
    for (const auto& variant : implementations(&KernelTable::pool_keys)) {
      INFO(variant.name);
      Pool c(4, 1, 4);
      c.places.assign(4, 0);
      c.run(variant.run, {1, 2, 3, 4}, {-2000, 900, 1000, -900}, 4);
      CHECK(c.rows().row(0, 0)[0] == 3);
    }
  }
}

TEST_SUITE("kernels/expand_pools") {
  const auto expand = [](std::vector<int32_t> pools, int32_t seen, int group, bool tail) {
    const std::vector<int32_t> visible = {seen};
    ExpandPoolsArgs args{pools.data(), visible.data(), nullptr, 1, int(pools.size()), group, tail};
    std::vector<int32_t> selected(size_t(args.slots()), -9);
    args.selected = selected.data();
    BackwardQueue queue;
    plain_kernels().expand_pools(args, queue);
    return selected;
  };

  TEST_CASE("pools become positions, and the open pool is always there") {
    // Group 4, position 13: three pools are complete, 12 and 13 lie in the fourth.
    CHECK(expand({0, 2}, 14, 4, true) == std::vector<int32_t>{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, -1});
    CHECK(expand({0, 2}, 14, 4, false) == std::vector<int32_t>{0, 1, 2, 3, 8, 9, 10, 11, -1, -1, -1});
    CHECK(expand({1, -1}, 8, 4, true) == std::vector<int32_t>{4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1});
    CHECK(expand({-1}, 3, 4, true) == std::vector<int32_t>{0, 1, 2, -1, -1, -1, -1});
    CHECK(expand({5, 7}, 9, 1, true) == std::vector<int32_t>{5, 7});
  }
}
