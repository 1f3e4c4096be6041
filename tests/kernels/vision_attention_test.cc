#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/thread_pool.h"
#include "tests/support/queues.h"
#include "tests/support/small_stack.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  std::vector<int> patches;  // of each picture
  int heads, dim;
};

// Pictures one after the other, in the layout of the tower: [patches, 3, heads, dim].
struct AttentionCase {
  Shape shape;
  Values qkv;
  std::vector<VisionAttentionRun> runs;
  int64_t patches = 0;
  float scale;
  Route route = Route::exact;

  explicit AttentionCase(const Shape& s, float spread = 1) : shape(s), scale(1 / std::sqrt(float(s.dim))) {
    for (const int n : s.patches) {
      runs.push_back({patches, patches, n, n});
      patches += n;
    }
    Random random(uint64_t(patches * 10 + s.dim));
    qkv = random.normals(size_t(patches) * 3 * size_t(width()), spread);
  }
  int64_t width() const { return int64_t(shape.heads) * shape.dim; }
  float* row(int part, int64_t t) { return qkv.data() + t * 3 * width() + part * width(); }

  VisionAttentionArgs args(float* o) const {
    return {.q = qkv.data(),
            .k = qkv.data() + width(),
            .v = qkv.data() + 2 * width(),
            .runs = runs.data(),
            .o = o,
            .q_token_stride = 3 * width(),
            .q_head_stride = shape.dim,
            .kv_token_stride = 3 * width(),
            .kv_head_stride = shape.dim,
            .o_token_stride = width(),
            .o_head_stride = shape.dim,
            .num_runs = int(runs.size()),
            .heads = shape.heads,
            .dim = shape.dim,
            .scale = scale,
            .route = route};
  }
  Values run(void (*kernel)(const VisionAttentionArgs&, Queue&)) const {
    BackwardQueue queue(1);
    return run(kernel, queue);
  }
  Values run(void (*kernel)(const VisionAttentionArgs&, Queue&), Queue& queue) const {
    Values o = poisoned(size_t(patches * width()));
    kernel(args(o.data()), queue);
    return o;
  }
};

}  // namespace

TEST_SUITE("kernels/vision_attention") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    // Scores of the first query: 2 ln 3 * 0.5 = ln 3 and 0, so weights 3/4 and 1/4; the second picture has one patch.
    for (const auto& variant : implementations(&KernelTable::vision_attention)) {
      INFO(variant.name);
      AttentionCase c({{2, 1}, 1, 1});
      const float log3 = std::log(3.f);
      c.scale = 0.5f;
      c.qkv = {2, log3, 8, 0, 0, 16, 1000, 1000, 5};
      CHECK(relative_error(c.run(variant.run), {10, 12, 5}) < 1e-6);
    }
  }

  TEST_CASE("every variant agrees with the reference, over ragged pictures") {
    for (const Shape& shape : {Shape{{1}, 1, 1},
                               {{4, 1, 9}, 2, 4},
                               {{63, 64, 65}, 2, 32},
                               {{97, 5, 200}, 3, 20},
                               {{130, 12}, 2, 128},
                               {{70}, 1, kVisionHeadDimMax},
                               {{6, 90}, 1, 68},
                               {{331}, 2, 72}})
      for (const auto& variant : variants(&KernelTable::vision_attention)) {
        INFO(variant.name, " dim ", shape.dim, " first picture ", shape.patches[0]);
        const AttentionCase c(shape);
        CHECK(relative_error(c.run(variant.run), c.run(ref::vision_attention)) < 3e-6);
      }
  }

  TEST_CASE(
      "the fast route agrees with the reference, over ragged pictures; a query gives the same bits alone") {
    for (const Shape& shape : {Shape{{1}, 1, 4},
                               {{4, 1, 9}, 2, 4},
                               {{63, 64, 65}, 2, 32},
                               {{97, 5, 200}, 3, 20},
                               {{130, 12}, 2, 128},
                               {{6, 90}, 1, 68},
                               {{257, 1}, 2, 72},
                               {{40}, 1, 6},
                               {{40}, 1, 132},
                               {{331}, 2, 128}})
      for (const auto& variant : variants(&KernelTable::vision_attention))
        for (const float spread : {0.1f, 1.f, 3.f}) {
          INFO(variant.name, " dim ", shape.dim, " first picture ", shape.patches[0], " spread ", spread);
          AttentionCase c(shape, spread);
          c.route = Route::fast;
          const Values o = c.run(variant.run);
          // GPUs round to f16; an error of a score, which grows with the square of the spread, is one of its weight.
          const double tolerance = variant.name == "cuda" ? 1e-3 * std::max(1.f, spread * spread) : 3e-6;
          CHECK(relative_error(o, c.run(ref::vision_attention)) < tolerance);
          AttentionCase one = c;
          const VisionAttentionRun& last = c.runs.back();
          one.runs = {{last.q_begin + last.queries - 1, last.k_begin, 1, last.keys}};
          Values alone = poisoned(o.size());
          SerialQueue queue;
          variant.run(one.args(alone.data()), queue);
          const size_t row = (size_t(c.patches) - 1) * size_t(c.width());
          CHECK(same_bits(Values(alone.begin() + int64_t(row), alone.end()),
                          Values(o.begin() + int64_t(row), o.end())));
        }
  }

  TEST_CASE("large scores: the maximum moves from block to block and nothing overflows") {
    for (const auto& variant : variants(&KernelTable::vision_attention)) {
      INFO(variant.name);
      AttentionCase c({{300}, 2, 16});
      for (int t = 0; t < 300; ++t)
        for (int64_t d = 0; d < c.width(); ++d) c.row(1, t)[d] *= 0.3f * float(t);
      CHECK(relative_error(c.run(variant.run), c.run(ref::vision_attention)) < 2e-5);
    }
  }

  TEST_CASE("pictures do not see each other: NaN in one leaves the others alone") {
    for (const auto& variant : implementations(&KernelTable::vision_attention))
      for (const Route route : {Route::exact, Route::fast}) {
        INFO(variant.name);
        AttentionCase c({{33, 70, 5}, 2, 8});
        c.route = route;
        const Values before = c.run(variant.run);
        for (int64_t t = 33; t < 103; ++t)
          for (int part = 0; part < 3; ++part) std::fill_n(c.row(part, t), c.width(), NAN);
        const Values after = c.run(variant.run);
        const auto same = [&](int64_t from, int64_t to) {
          return same_bits(Values(before.begin() + from * c.width(), before.begin() + to * c.width()),
                           Values(after.begin() + from * c.width(), after.begin() + to * c.width()));
        };
        CHECK(same(0, 33));
        CHECK(same(103, 108));
        CHECK(std::isnan(after[size_t(40 * c.width())]));
      }
  }

  TEST_CASE("the bits do not depend on threads, nor on which queries come together") {
    for (const auto& variant : variants(&KernelTable::vision_attention)) {
      INFO(variant.name);
      AttentionCase c({{201, 40}, 2, 24});
      const Values alone = c.run(variant.run);
      for (int threads : {1, 3, 64}) {
        BackwardQueue queue(threads);
        CHECK(same_bits(c.run(variant.run, queue), alone));
      }
      ThreadPool pool(3);
      CHECK(same_bits(c.run(variant.run, pool), alone));

      // The queries in slices that cross the pictures, each slice a call of its own.
      Values sliced = poisoned(alone.size());
      for (const auto& [first, count] : {std::pair<int64_t, int>{0, 7}, {7, 190}, {197, 44}}) {
        AttentionCase slice = c;
        slice.runs.clear();
        for (const VisionAttentionRun& run : c.runs) {
          const int64_t begin = std::max(first, run.q_begin),
                        end = std::min(first + count, run.q_begin + run.queries);
          if (begin < end) slice.runs.push_back({begin, run.k_begin, int(end - begin), run.keys});
        }
        SerialQueue queue;
        variant.run(slice.args(sliced.data()), queue);
      }
      CHECK(same_bits(sliced, alone));
    }
  }

  TEST_CASE("the widest head runs on a small stack") {
    for (const auto& variant : variants(&KernelTable::vision_attention)) {
      INFO(variant.name);
      const AttentionCase c({{200}, 1, kVisionHeadDimMax});
      const Values expected = c.run(variant.run);
      Values o;
      on_small_stack([&] { o = c.run(variant.run); });
      CHECK(same_bits(o, expected));
    }
  }
}
