#include <doctest/doctest.h>

#include "tests/support/pages.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

// Tokens of several sequences; token t sees visible[t] positions of its own.
struct IndexScoresCase {
  Pages keys;
  int heads, dim, context;
  Values q, weights;
  std::vector<int32_t> sequence_of, visible;
  PagedRows k = {};  // where the keys lie, unless in `keys`
  Route route = Route::exact;

  IndexScoresCase(Random& random, std::vector<int> lengths, int tokens, int heads_, int dim_)
      : keys(random, lengths, dim_), heads(heads_), dim(dim_) {
    context = *std::max_element(lengths.begin(), lengths.end()) + (tokens % 2 ? 0 : 3);
    q = random.normals(size_t(tokens) * heads * dim);
    weights = random.normals(size_t(tokens) * heads);
    for (int t = 0; t < tokens; ++t) {
      sequence_of.push_back(int32_t(t * lengths.size() / tokens));
      const int length = lengths[sequence_of.back()];
      visible.push_back(t % 3 == 0 ? length : int32_t(random.integer(0, length)));
    }
  }

  IndexScoresArgs args(Values& scores) {
    return {q.data(),      weights.data(), sequence_of.data(),  visible.data(), k.pages ? k : keys.rows(),
            scores.data(), context + 2,    int(visible.size()), heads,          dim,
            context,       route};
  }
  Values run(void (*kernel)(const IndexScoresArgs&, Queue&)) {
    SerialQueue queue;
    return run(kernel, queue);
  }
  Values run(void (*kernel)(const IndexScoresArgs&, Queue&), Queue& queue) {
    Values scores = poisoned(visible.size() * (context + 2));
    kernel(args(scores), queue);
    return scores;
  }
};

}  // namespace

TEST_SUITE("kernels/index_scores") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::index_scores)) {
      INFO(variant.name);
      Random random(1);
      IndexScoresCase c(random, {2}, 1, 2, 2);
      c.q = {1, 1, -3, 0}, c.weights = {0.5f, 2}, c.visible = {1}, c.context = 2;
      c.keys.row(0, 0)[0] = 2, c.keys.row(0, 0)[1] = 1;
      const Values scores = c.run(variant.run);
      CHECK(scores[0] == 1.5f);  // 0.5 * max(0, 3) + 2 * max(0, -6)
      CHECK(scores[1] == -INFINITY);
      CHECK(std::isnan(scores[2]));  // beyond the context: not written
    }
  }

  TEST_CASE("each head is clamped before the sum (IDX-04)") {
    for (const auto& variant : implementations(&KernelTable::index_scores)) {
      INFO(variant.name);
      Random random(1);
      IndexScoresCase c(random, {8}, 1, 2, 2);
      c.q = {1, 0, 0, 1}, c.weights = {1, 1}, c.visible = {8};
      for (int p = 0; p < 8; ++p) c.keys.row(0, p)[0] = c.keys.row(0, p)[1] = -1;
      c.keys.row(0, 3)[0] = 5, c.keys.row(0, 3)[1] = -5;
      c.keys.row(0, 7)[0] = 1, c.keys.row(0, 7)[1] = 1;
      const Values scores = c.run(variant.run);
      CHECK(scores[3] == 5);
      CHECK(scores[7] == 2);
      CHECK(scores[0] == 0);
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    struct Shape {
      std::vector<int> lengths;
      int tokens, heads, dim;
    };
    const Shape shapes[] = {{{1}, 1, 1, 1},
                            {{63, 64, 65}, 7, 3, 17},
                            {{300}, 70, 4, 128},
                            {{1, 129, 7}, 131, 5, 32},
                            {{200, 1000}, 3, 64, 128},
                            {{65}, 2, 2, 6},
                            {{128}, 1, 7, 256},
                            {{70}, 2, 2, 300}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::index_scores)) {
        INFO(variant.name, " heads ", shape.heads, " dim ", shape.dim, " tokens ", shape.tokens);
        Random random(7);
        IndexScoresCase c(random, shape.lengths, shape.tokens, shape.heads, shape.dim);
        CHECK(relative_error(c.run(variant.run), c.run(ref::index_scores)) < 2e-6);
      }
  }

  TEST_CASE("keys kept as bf16 are taken as they are, and the fast route rounds no more than q to bf16") {
    struct Shape {
      std::vector<int> lengths;
      int tokens, heads, dim;
    };
    const Shape shapes[] = {
        {{63, 64, 65}, 7, 3, 17},          {{200, 700}, 3, 64, 128},        {{64}, 1, 64, 128},
        {{1, 130, 700}, 3, 32, 128},       {{1, 129, 7, 200}, 70, 64, 128}, {{200, 64}, 66, 32, 128},
        {{500, 33, 260, 1200}, 4, 64, 128}};
    for (const Shape& shape : shapes)
      for (const auto& variant : implementations(&KernelTable::index_scores)) {
        INFO(variant.name, " heads ", shape.heads, " dim ", shape.dim, " tokens ", shape.tokens);
        Random random(7);
        IndexScoresCase c(random, shape.lengths, shape.tokens, shape.heads, shape.dim);
        const NarrowPages keys(c.keys);
        c.k = keys.rows();
        const Values exact = c.run(variant.run);
        c.k = {};
        CHECK(relative_error(exact, c.run(ref::index_scores)) < 2e-6);
        narrow(c.q);
        const Values want = c.run(ref::index_scores);
        c.k = keys.rows(), c.route = Route::fast;
        const Values fast = c.run(variant.run);
        CHECK(relative_error(fast, want) < 1e-5);
        // A token alone has the same bits.
        for (const int t : {0, shape.tokens / 2, shape.tokens - 1}) {
          Values alone = poisoned(c.context + 2);
          IndexScoresArgs args = c.args(alone);
          args.q += size_t(t) * c.heads * c.dim, args.head_weights += t * c.heads;
          args.sequence_of += t, args.visible += t, args.tokens = 1;
          SerialQueue queue;
          variant.run(args, queue);
          CHECK(same_bits(alone, part(fast, size_t(t), size_t(c.context) + 2)));
        }
      }
  }

  TEST_CASE("bf16 keys of pages with fewer rows, and a NaN among them, on the fast route") {
    for (const int page_rows : {4, 16, 64})
      for (const auto& variant : implementations(&KernelTable::index_scores))
        for (const int tokens : {3, 80}) {
          INFO(variant.name, " rows of a page ", page_rows, " tokens ", tokens);
          Random random(9);
          IndexScoresCase c(random, {300}, tokens, 64, 128);
          c.visible.assign(size_t(tokens), 290);
          narrow(c.q);
          c.keys.row(0, 70)[5] = NAN;
          const int pages = (300 + page_rows - 1) / page_rows;
          std::vector<bf16> memory(size_t(pages) * page_rows * 128, bf16{0xffff});
          std::vector<int32_t> tables;
          for (int i = 0; i < pages; ++i) tables.push_back(pages - 1 - i);
          const PagedRows few{memory.data(), size_t(page_rows) * 256, tables.data(), pages, 128,
                              page_rows,     CacheFormat::bf16};
          for (int p = 0; p < 300; ++p)
            for (int d = 0; d < 128; ++d) {
              const bf16 value = to_bf16(c.keys.row(0, p)[d]);
              few.values<bf16>(0, p)[d] = value;
              c.keys.row(0, p)[d] = to_f32(value);
            }
          const Values want = c.run(ref::index_scores);
          c.k = few, c.route = Route::fast;
          const Values scores = c.run(variant.run);
          CHECK(relative_error(scores, want) < 1e-5);
          for (int p = 0; p < 290; ++p) CHECK(std::isnan(scores[p]) == (p == 70));
        }
  }

  TEST_CASE("what lies in unused rows does not matter (IDX-11)") {
    for (int length : {1, 63, 64, 65})
      for (const auto& variant : implementations(&KernelTable::index_scores)) {
        INFO(variant.name, " length ", length);
        Random random(3);
        IndexScoresCase c(random, {length, 2 * length}, 5, 4, 32);
        const Values with_nan = c.run(variant.run);
        c.keys.fill_unused(0);
        CHECK(same_bits(with_nan, c.run(variant.run)));
        for (int p = 0; p < c.visible[0]; ++p) CHECK(std::isfinite(with_nan[p]));
      }
  }

  TEST_CASE("a visible NaN key gives a NaN score there and nowhere else") {
    for (const auto& variant : implementations(&KernelTable::index_scores)) {
      INFO(variant.name);
      Random random(3);
      IndexScoresCase c(random, {100}, 1, 4, 32);
      c.keys.row(0, 70)[5] = NAN;
      const Values scores = c.run(variant.run);
      for (int p = 0; p < 100; ++p) CHECK(std::isnan(scores[p]) == (p == 70));
    }
  }

  TEST_CASE("positions around and beyond 32768 and 65536 (IDX-12)") {
    for (const auto& variant : implementations(&KernelTable::index_scores)) {
      INFO(variant.name);
      Random random(3);
      IndexScoresCase c(random, {65600}, 1, 1, 4);
      c.q = {1, 0, 0, 0}, c.weights = {1};
      for (int p = 0; p < 65600; ++p) c.keys.row(0, p)[0] = float(p);
      const Values scores = c.run(variant.run);
      for (int p : {0, 255, 256, 32767, 32768, 32769, 65535, 65536, 65599}) CHECK(scores[p] == float(p));
    }
  }

  TEST_CASE("pages beyond 2 and 4 GiB, 2^32 floats, and page 65536 (IDX-16)") {
    if (!reaches_far_pages()) return;
    for (auto layout : {FarPages::Layout::wide, FarPages::Layout::packed}) {
      Random random(5);
      IndexScoresCase c(random, {4 * kPageSize + 9}, 3, 4, 32);
      FarPages far(c.keys, 0, layout);
      REQUIRE(far.mapped());
      for (const auto& variant : implementations(&KernelTable::index_scores)) {
        INFO(variant.name);
        const Values near_scores = c.run(variant.run);
        Values scores = poisoned(near_scores.size());
        IndexScoresArgs args = c.args(scores);
        args.k = far.rows();
        SerialQueue queue;
        variant.run(args, queue);
        CHECK(same_bits(scores, near_scores));
      }
    }
  }

  TEST_CASE("pages with fewer keys give the same bits") {
    for (const int page_rows : {1, 4, 16, 32})
      for (const auto& variant : implementations(&KernelTable::index_scores)) {
        INFO(variant.name, " rows of a page ", page_rows);
        Random random(9);
        IndexScoresCase c(random, {70, 141}, 23, 5, 36);
        // The same keys, last page first, NaN behind the last one.
        const int pages = (141 + page_rows - 1) / page_rows;
        const size_t page_stride = size_t(page_rows) * 36 + 3;
        Values memory = poisoned(2 * pages * page_stride);
        std::vector<int32_t> tables;
        for (int i = 0; i < 2 * pages; ++i) tables.push_back(2 * pages - 1 - i);
        const PagedRows few{memory.data(), page_stride * sizeof(float), tables.data(), pages, 36, page_rows};
        for (int s = 0; s < 2; ++s)
          for (int p = 0; p < c.keys.length(s); ++p)
            memcpy(few.values<float>(s, p), c.keys.row(s, p), 36 * sizeof(float));
        Values scores = poisoned(23 * (c.context + 2));
        IndexScoresArgs args = c.args(scores);
        args.k = few;
        BackwardQueue queue;
        variant.run(args, queue);
        CHECK(same_bits(scores, c.run(variant.run)));
      }
  }

  TEST_CASE("a token alone, in a batch and on other threads gives the same bits") {
    for (const auto& variant : implementations(&KernelTable::index_scores)) {
      INFO(variant.name);
      Random random(11);
      IndexScoresCase c(random, {65, 200, 130}, 90, 5, 48);
      const Values together = c.run(variant.run);
      BackwardQueue backward;
      CHECK(same_bits(c.run(variant.run, backward), together));
      for (int t : {0, 29, 30, 64, 89}) {
        Values alone = poisoned(c.context + 2);
        IndexScoresArgs args = c.args(alone);
        args.q += size_t(t) * c.heads * c.dim, args.head_weights += t * c.heads;
        args.sequence_of += t, args.visible += t, args.tokens = 1;
        SerialQueue queue;
        variant.run(args, queue);
        CHECK(same_bits(alone, Values(together.begin() + t * (c.context + 2),
                                      together.begin() + (t + 1) * (c.context + 2))));
      }
    }
  }
}
