#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/pages.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  std::vector<int> lengths;
  int tokens, heads, kv_heads, dim, window;
};

struct GqaCase {
  Shape shape;
  Pages k, v;
  Values q, sinks;
  std::vector<int32_t> sequence_of, visible;
  float scale;
  Route route = Route::exact;

  GqaCase(Random& random, const Shape& s, int gap = 5)
      : shape(s),
        k(random, s.lengths, s.kv_heads * s.dim, 1, gap),
        v(random, s.lengths, s.kv_heads * s.dim, 1, gap) {
    q = random.normals(size_t(s.tokens) * s.heads * s.dim);
    sinks = random.normals(size_t(s.heads), 2);
    scale = 1 / std::sqrt(float(s.dim));
    for (int t = 0; t < s.tokens; ++t) {
      sequence_of.push_back(int32_t(t * s.lengths.size() / s.tokens));
      const int length = s.lengths[sequence_of.back()];
      visible.push_back(t % 3 == 0 ? length : int32_t(random.integer(1, length)));
    }
  }
  GqaAttentionArgs args(Values& o, bool sink) {
    return {q.data(),
            sequence_of.data(),
            visible.data(),
            k.rows(),
            v.rows(),
            sink ? sinks.data() : nullptr,
            o.data(),
            shape.tokens,
            shape.heads,
            shape.kv_heads,
            shape.dim,
            shape.window,
            scale,
            route,
            int(shape.lengths.size())};
  }
  Values run(void (*kernel)(const GqaAttentionArgs&, Queue&), bool sink) {
    Values o = poisoned(size_t(shape.tokens) * shape.heads * shape.dim);
    BackwardQueue queue;
    kernel(args(o, sink), queue);
    return o;
  }
};

}  // namespace

TEST_SUITE("kernels/gqa_attention") {
  TEST_CASE("keys and values kept as bf16 are taken as they are") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
      INFO(variant.name);
      Random random(4);
      GqaCase c(random, {{130, 70}, 5, 6, 2, 20, 90});
      const NarrowPages k(c.k), v(c.v);
      const Values want = c.run(ref::gqa_attention, true);
      Values o = poisoned(want.size());
      GqaAttentionArgs args = c.args(o, true);
      args.k = k.rows(), args.v = v.rows();
      BackwardQueue queue;
      variant.run(args, queue);
      CHECK(relative_error(o, want) < 3e-6);
    }
  }

  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
      INFO(variant.name);
      Random random(1);
      GqaCase c(random, {{3}, 1, 2, 1, 1, 2});
      c.q = {1, 2}, c.scale = 1, c.visible = {3}, c.sinks = {0, std::log(2.f)};
      c.k.row(0, 0)[0] = c.v.row(0, 0)[0] = NAN;  // outside of the window
      c.k.row(0, 1)[0] = 0, c.k.row(0, 2)[0] = std::log(2.f);
      c.v.row(0, 1)[0] = 3, c.v.row(0, 2)[0] = 6;
      const Values plain = c.run(variant.run, false), sink = c.run(variant.run, true);
      CHECK(plain[0] == doctest::Approx((1 * 3 + 2 * 6) / 3.0));  // weights e^0, e^(ln 2)
      CHECK(plain[1] == doctest::Approx((1 * 3 + 4 * 6) / 5.0));  // e^0, e^(2 ln 2)
      CHECK(sink[0] == doctest::Approx((1 * 3 + 2 * 6) / 4.0));
      CHECK(sink[1] == doctest::Approx((1 * 3 + 4 * 6) / 7.0));
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    const Shape shapes[] = {{{1}, 1, 1, 1, 1, 0},       {{63, 64, 65}, 7, 6, 2, 20, 0},
                            {{300}, 3, 64, 8, 64, 128}, {{33, 400, 7}, 9, 4, 2, 32, 40},
                            {{97}, 2, 5, 1, 7, 1},      {{200}, 2, 14, 2, 80, 33},
                            {{129}, 1, 3, 3, 128, 64}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::gqa_attention))
        for (const bool sink : {true, false}) {
          INFO(variant.name, " heads ", shape.heads, " dim ", shape.dim, " window ", shape.window, " sink ",
               sink);
          Random random(7);
          GqaCase c(random, shape);
          CHECK(relative_error(c.run(variant.run, sink), c.run(ref::gqa_attention, sink)) < 3e-6);
        }
  }

  TEST_CASE("the fast route with many tokens: f16 on GPUs; the bits of a token do not depend on the others") {
    const Shape shapes[] = {
        {{63, 64, 165}, 48, 6, 2, 20, 0}, {{300}, 40, 16, 2, 64, 128}, {{33, 100, 7}, 60, 4, 2, 32, 40},
        {{97}, 37, 5, 1, 8, 1},           {{200}, 40, 14, 2, 80, 33},  {{129, 60}, 70, 3, 3, 128, 64},
        {{150, 90}, 33, 129, 1, 4, 0},    {{70}, 34, 2, 1, 132, 0},    {{70}, 34, 2, 2, 6, 0}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::gqa_attention))
        for (const bool sink : {true, false}) {
          INFO(variant.name, " heads ", shape.heads, " dim ", shape.dim, " window ", shape.window, " sink ",
               sink);
          Random random(17);
          GqaCase c(random, shape, 4);
          c.route = Route::fast;
          c.visible[3] = 0;
          Values o = c.run(variant.run, sink);
          CHECK(relative_error(o, c.run(ref::gqa_attention, sink)) < (variant.name == "cuda" ? 2e-3 : 3e-6));
          const size_t size = size_t(shape.heads) * shape.dim;
          for (size_t i = 0; i < size; ++i) REQUIRE(o[3 * size + i] == 0);
          c.route = Route::exact;
          const bool rounds = variant.name == "cuda" && shape.dim % 4 == 0 && shape.dim <= 128 &&
                              shape.heads / shape.kv_heads <= 128;
          CHECK(same_bits(c.run(variant.run, sink), o) == !rounds);
          c.route = Route::fast;
          const NarrowPages k(c.k), v(c.v);
          Values later = poisoned(o.size());
          GqaAttentionArgs narrow = c.args(later, sink);
          narrow.k = k.rows(), narrow.v = v.rows();
          BackwardQueue backward;
          variant.run(narrow, backward);
          CHECK(same_bits(c.run(variant.run, sink), later));  // the pages hold what bf16 holds by now
          o = later, later = poisoned(o.size());
          GqaAttentionArgs args = c.args(later, sink);
          const int first = shape.tokens > 36 ? 3 : 0;
          args.q += first * size, args.o += first * size, args.tokens -= first;
          args.sequence_of += first, args.visible += first;
          SerialQueue queue;
          variant.run(args, queue);
          CHECK(same_bits(Values(later.begin() + int64_t(first * size), later.end()),
                          Values(o.begin() + int64_t(first * size), o.end())));
        }
  }

  TEST_CASE("the fast route: what no token sees does not matter, NaN or not") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
      INFO(variant.name);
      Random random(18);
      GqaCase c(random, {{250}, 40, 4, 2, 32, 20}, 4);
      c.route = Route::fast;
      for (int t = 0; t < 40; ++t) c.visible[size_t(t)] = 130 + t;
      const Values o = c.run(variant.run, true);
      for (int p = 0; p < 250; ++p)
        if (p < 110 || p >= 169) std::fill_n(c.k.row(0, p), 64, NAN), std::fill_n(c.v.row(0, p), 64, NAN);
      CHECK(same_bits(c.run(variant.run, true), o));
    }
  }

  TEST_CASE("every number of positions, and every window, from 1 to 70") {
    for (const auto& variant : variants(&KernelTable::gqa_attention))
      for (int n = 1; n <= 70; ++n) {
        INFO(variant.name, " n ", n);
        Random random(uint64_t(n) + 1);
        GqaCase full(random, {{n}, 1, 3, 1, 16, 0}), windowed(random, {{71}, 1, 3, 1, 16, n});
        CHECK(relative_error(full.run(variant.run, true), full.run(ref::gqa_attention, true)) < 3e-6);
        CHECK(relative_error(windowed.run(variant.run, true), windowed.run(ref::gqa_attention, true)) < 3e-6);
      }
  }

  TEST_CASE("a token that sees nothing gives zero; what it does not see does not matter") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
      INFO(variant.name);
      Random random(8);
      GqaCase c(random, {{150}, 2, 4, 2, 32, 20});
      c.visible = {0, 100};
      const Values o = c.run(variant.run, true);
      for (int i = 0; i < 4 * 32; ++i) CHECK(o[i] == 0);
      for (int p = 0; p < 150; ++p)
        if (p < 80 || p >= 100) std::fill_n(c.k.row(0, p), 64, NAN), std::fill_n(c.v.row(0, p), 64, NAN);
      CHECK(c.run(variant.run, true) == o);
    }
  }

  TEST_CASE("scores and sinks far beyond the range of exp") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention))
      for (const float sink : {-500.f, 500.f, -INFINITY}) {
        INFO(variant.name, " sink ", sink);
        Random random(3);
        GqaCase c(random, {{150}, 2, 3, 1, 32, 0});
        c.sinks.assign(3, sink), c.scale = 20;
        const Values o = c.run(variant.run, true);
        for (float value : o) CHECK(std::isfinite(value));
        if (sink == -INFINITY) CHECK(relative_error(o, c.run(variant.run, false)) < 1e-6);
      }
  }

  TEST_CASE("a token alone gives the bits that it gives among others") {
    for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
      INFO(variant.name);
      Random random(11);
      GqaCase c(random, {{65, 200, 130}, 12, 10, 2, 48, 70});
      const Values together = c.run(variant.run, true);
      const size_t size = 10 * 48;
      for (const int t : {0, 5, 11}) {
        Values alone = poisoned(size);
        GqaAttentionArgs args = c.args(alone, true);
        args.q += t * size, args.sequence_of += t, args.visible += t, args.tokens = 1;
        SerialQueue queue;
        variant.run(args, queue);
        CHECK(alone == part(together, size_t(t), size));
      }
    }
  }

  TEST_CASE("pages beyond 2 and 4 GiB, 2^32 floats, and page 65536") {
    if (!reaches_far_pages()) return;
    for (const auto layout : {FarPages::Layout::wide, FarPages::Layout::packed})
      for (const auto& variant : implementations(&KernelTable::gqa_attention)) {
        INFO(variant.name);
        Random random(5);
        GqaCase c(random, {{4 * kPageSize + 9}, 3, 4, 2, 16, 0});
        FarPages k(c.k, 0, layout), v(c.v, 0, layout);
        REQUIRE(k.mapped());
        REQUIRE(v.mapped());
        Values o = poisoned(3 * 4 * 16);
        GqaAttentionArgs args = c.args(o, true);
        args.k = k.rows(), args.v = v.rows();
        SerialQueue queue;
        variant.run(args, queue);
        CHECK(o == c.run(variant.run, true));
      }
  }
}
