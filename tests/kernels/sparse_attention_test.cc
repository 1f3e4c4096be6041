#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/support/pages.h"
#include "tests/support/queues.h"
#include "tests/support/small_stack.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  std::vector<int> lengths;
  int tokens, heads, latent_dim, rope_dim, top_k;
};

// Tokens of several sequences. Every third token has a full list, others end early with unused slots.
struct AttentionCase {
  Shape shape;
  Pages latents;
  Values q_latent, q_rope;
  std::vector<int32_t> sequence_of, visible, selected;
  float scale;
  PagedRows cache = {};  // where the latents lie, unless in `latents`
  Route route = Route::exact;

  AttentionCase(Random& random, const Shape& s)
      : shape(s), latents(random, s.lengths, s.latent_dim + s.rope_dim) {
    const size_t rows = size_t(s.tokens) * s.heads;
    q_latent = random.normals(rows * s.latent_dim);
    q_rope = random.normals(rows * (s.rope_dim + 3));  // rows lie apart
    scale = 1 / std::sqrt(float(s.latent_dim + s.rope_dim));
    selected.assign(size_t(s.tokens) * s.top_k, -1);
    for (int t = 0; t < s.tokens; ++t) {
      sequence_of.push_back(int32_t(t * s.lengths.size() / s.tokens));
      const int length = s.lengths[sequence_of.back()];
      visible.push_back(t % 3 == 0 ? length : int32_t(random.integer(1, length)));
      std::vector<int32_t> positions(visible.back());
      std::iota(positions.begin(), positions.end(), 0);
      while (int(positions.size()) > s.top_k)
        positions.erase(positions.begin() + random.integer(0, positions.size() - 1));
      std::copy(positions.begin(), positions.end(), selected.begin() + size_t(t) * s.top_k);
    }
  }

  // The latents in a cache that rounds; those in `latents` are rounded alike.
  PagedRows rounded(CacheFormat format) {
    if (format == CacheFormat::fp8)
      return (fp8_ = std::make_shared<Fp8Pages>(latents, shape.latent_dim))->rows();
    return (narrow_ = std::make_shared<NarrowPages>(latents))->rows();
  }

  SparseAttentionArgs args(Values& o, bool select) {
    const int64_t rope = shape.rope_dim + 3;
    return {q_latent.data(),
            q_rope.data(),
            sequence_of.data(),
            visible.data(),
            select ? selected.data() : nullptr,
            cache.pages ? cache : latents.rows(),
            o.data(),
            rope * shape.heads,
            rope,
            shape.tokens,
            shape.heads,
            shape.latent_dim,
            shape.rope_dim,
            shape.top_k,
            scale,
            route};
  }
  Values run(const Variant<SparseAttentionArgs>& variant, bool select) {
    SerialQueue queue;
    return run(variant, select, queue);
  }
  Values run(const Variant<SparseAttentionArgs>& variant, bool select, Queue& queue) {
    Values o = poisoned(size_t(shape.tokens) * shape.heads * shape.latent_dim);
    variant.run(args(o, select), queue);
    return o;
  }

 private:
  std::shared_ptr<NarrowPages> narrow_;
  std::shared_ptr<Fp8Pages> fp8_;
};

const std::pair<CacheFormat, bool> kFormatsAndSelections[] = {{CacheFormat::bf16, true},
                                                              {CacheFormat::bf16, false},
                                                              {CacheFormat::fp8, true},
                                                              {CacheFormat::fp8, false}};

const Variant<SparseAttentionArgs> kReference{"ref", ref::sparse_attention};

}  // namespace

TEST_SUITE("kernels/sparse_attention") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    // Scores 0.5 (2 * 1 + 1 * 0) = 1 and 0.5 (2 * 0 + 1 * 2) = 1: equal weights; the third row is not
    // selected.
    for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
      INFO(variant.name);
      Random random(1);
      AttentionCase c(random, {{3}, 1, 1, 1, 1, 2});
      c.q_latent = {2}, c.q_rope = {1, NAN, NAN, NAN}, c.scale = 0.5f, c.visible = {3}, c.selected = {0, 2};
      c.latents.row(0, 0)[0] = 1, c.latents.row(0, 0)[1] = 0;
      c.latents.row(0, 1)[0] = c.latents.row(0, 1)[1] = NAN;
      c.latents.row(0, 2)[0] = 0, c.latents.row(0, 2)[1] = 2;
      CHECK(c.run(variant, true)[0] == doctest::Approx(0.5));
      c.latents.row(0, 2)[1] = 0;  // scores 1 and 0
      CHECK(c.run(variant, true)[0] == doctest::Approx(0.7310586));
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    const Shape shapes[] = {{{1}, 1, 1, 1, 1, 1},         {{63, 64, 65}, 7, 3, 20, 5, 40},
                            {{200}, 3, 16, 512, 64, 130}, {{33, 400, 7}, 9, 6, 64, 16, 128},
                            {{97}, 2, 96, 128, 64, 31},   {{300}, 1, 17, 96, 0, 33},
                            {{40}, 2, 2, 7, 9, 64},       {{65}, 1, 5, 528, 24, 65}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::sparse_attention))
        for (const bool select : {true, false}) {
          INFO(variant.name, " heads ", shape.heads, " latent ", shape.latent_dim, " select ", select);
          Random random(7);
          AttentionCase c(random, shape);
          CHECK(relative_error(c.run(variant, select), c.run(kReference, select)) < 3e-6);
        }
  }

  TEST_CASE(
      "rows kept as bf16 or fp8 are taken as they are; the fast route rounds q and the weights to bf16") {
    const Shape shapes[] = {{{63, 64, 65}, 7, 3, 20, 5, 40},       {{1}, 1, 64, 512, 64, 1},
                            {{200}, 3, 16, 512, 64, 130},          {{1100, 2, 65}, 3, 64, 512, 64, 1040},
                            {{200, 64, 129}, 4, 96, 512, 64, 150}, {{128, 200}, 5, 128, 512, 64, 100},
                            {{1100}, 34, 1, 512, 64, 90},          {{513, 1500, 512, 9}, 4, 3, 512, 64, 90},
                            {{700, 65}, 3, 20, 512, 0, 300},       {{300}, 68, 2, 512, 0, 290},
                            {{2200}, 36, 1, 512, 64, 90}};
    for (const Shape& shape : shapes)
      for (const auto& [format, select] : kFormatsAndSelections) {
        Random random(7);
        AttentionCase c(random, shape);
        const PagedRows cache = c.rounded(format);
        const Values want_exact = c.run(kReference, select);
        const Values q[] = {c.q_latent, c.q_rope};
        narrow(c.q_latent), narrow(c.q_rope);
        const Values want_fast = c.run(kReference, select);
        c.cache = cache;
        for (const auto& variant : variants(&KernelTable::sparse_attention)) {
          INFO(variant.name, " fp8 ", format == CacheFormat::fp8, " heads ", shape.heads, " latent ",
               shape.latent_dim, " select ", select);
          AttentionCase exact = c;
          exact.q_latent = q[0], exact.q_rope = q[1];
          CHECK(relative_error(exact.run(variant, select), want_exact) < 3e-6);
          c.route = Route::fast;
          const Values fast = c.run(variant, select);
          CHECK(relative_error(fast, want_fast) < 3e-3);
          // A token alone has the same bits.
          const size_t size = size_t(shape.heads) * shape.latent_dim;
          for (const int t : {0, shape.tokens / 2, shape.tokens - 1}) {
            Values alone = poisoned(size);
            SparseAttentionArgs args = c.args(alone, select);
            args.q_latent += t * size, args.q_rope += t * args.q_rope_token_stride;
            args.sequence_of += t, args.visible += t, args.tokens = 1;
            if (select) args.selected += t * args.top_k;
            SerialQueue queue;
            variant.run(args, queue);
            CHECK(same_bits(alone, part(fast, size_t(t), size)));
          }
          c.route = Route::exact;
        }
      }
  }

  TEST_CASE("unused slots anywhere, huge scores and nothing to see, on the fast route of rounded rows") {
    for (const auto& variant : variants(&KernelTable::sparse_attention))
      for (const auto& [scale, format] : {std::pair{0.04f, CacheFormat::bf16},
                                          {200.f, CacheFormat::bf16},
                                          {0.f, CacheFormat::bf16},
                                          {0.04f, CacheFormat::fp8},
                                          {200.f, CacheFormat::fp8}}) {
        INFO(variant.name, " scale ", scale, " fp8 ", format == CacheFormat::fp8);
        Random random(8);
        AttentionCase c(random, {{300, 40}, 3, 64, 512, 64, 300});
        c.scale = scale;
        for (int i = 0; i < 300; ++i)
          if (i < 70 || i % 3 == 0) c.selected[i] = -1;
        std::fill_n(c.selected.begin() + 300, 300, -1);
        narrow(c.q_latent), narrow(c.q_rope);
        const PagedRows cache = c.rounded(format);
        const Values want = c.run(kReference, true);
        c.cache = cache, c.route = Route::fast;
        const Values o = c.run(variant, true);
        CHECK(part(o, 1, 64 * 512) == Values(64 * 512, 0.f));
        CHECK(relative_error(o, want) < (scale == 200 ? 0.1 : 3e-3));
      }
  }

  TEST_CASE("latents of fp8 that are tiny, huge, and mostly below the smallest normal code") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention))
      for (const float size : {1e-9f, 1e-6f, 1e6f, 1e30f}) {
        INFO(variant.name, " size ", size);
        Random random(9);
        AttentionCase c(random, {{90}, 2, 3, 512, 64, 64});
        for (int p = 0; p < 90; ++p)
          for (int d = 0; d < 512; ++d) c.latents.row(0, p)[d] *= d % 128 == 5 ? size : size * 1e-5f;
        for (float& q : c.q_latent) q *= 1 / size;
        narrow(c.q_latent), narrow(c.q_rope);
        const PagedRows cache = c.rounded(CacheFormat::fp8);
        const Values want = c.run(kReference, true);
        c.cache = cache, c.route = Route::fast;
        CHECK(relative_error(c.run(variant, true), want) < 3e-3);
      }
  }

  TEST_CASE("rows of fp8 of any width, on a small stack") {
    for (const auto& variant : variants(&KernelTable::sparse_attention))
      for (const int latent : {512, 900, 1024}) {
        INFO(variant.name, " latent ", latent);
        Random random(10);
        AttentionCase c(random, {{90}, 2, 5, latent, 64, 64});
        const PagedRows cache = c.rounded(CacheFormat::fp8);
        const Values want = c.run(kReference, true);
        c.cache = cache;
        on_small_stack([&] { CHECK(relative_error(c.run(variant, true), want) < 3e-6); });
      }
  }

  TEST_CASE("a scale that is NaN gives NaN to those who select its row, and to nobody else") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
      INFO(variant.name);
      Random random(9);
      AttentionCase c(random, {{90}, 2, 3, 512, 64, 64});
      c.cache = c.rounded(CacheFormat::fp8), c.route = Route::fast;
      c.cache.row(0, 70).fp8().scales()[2] = NAN;
      for (int i = 0; i < 64; ++i) c.selected[size_t(i)] = i, c.selected[size_t(64 + i)] = i + 20;
      c.visible = {90, 90};
      const Values o = c.run(variant, true);
      for (size_t i = 0; i < o.size(); ++i) REQUIRE(std::isnan(o[i]) == (i >= 3 * 512));
    }
  }

  TEST_CASE("every number of positions from 1 to 140") {
    for (const auto& variant : variants(&KernelTable::sparse_attention))
      for (int length = 1; length <= 140; ++length) {
        INFO(variant.name, " length ", length);
        Random random(length);
        AttentionCase c(random, {{length}, 1, 5, 32, 8, 140});
        const Values all_visible = c.run(variant, false);
        CHECK(relative_error(all_visible, c.run(kReference, false)) < 3e-6);
        CHECK(c.run(variant, true) == all_visible);  // the whole list is no selection
      }
  }

  TEST_CASE("unused slots at the front, in the middle, everywhere (IDX-08)") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention))
      for (const int unused : {16, 32, 128, 300}) {
        INFO(variant.name, " unused ", unused);
        Random random(8);
        AttentionCase c(random, {{300}, 1, 4, 32, 8, 300});
        const auto list = c.selected;
        for (int i = 0; i < unused; ++i) c.selected[i] = -1;
        const Values front = c.run(variant, true);
        if (unused == 300) {
          CHECK(front == Values(front.size(), 0.f));
          continue;
        }
        // The same positions without the gap, and with gaps elsewhere.
        for (int i = 0; i < 300; ++i) c.selected[i] = i + unused < 300 ? list[i + unused] : -1;
        CHECK(c.run(variant, true) == front);
        CHECK(relative_error(front, c.run(kReference, true)) < 3e-6);
        c.selected.assign(300, -1);
        for (int i = unused; i < 300; ++i) c.selected[i - unused / 2 * (i % 2)] = list[i];
        Values sorted_again = c.run(variant, true);
        CHECK(relative_error(sorted_again, c.run(kReference, true)) < 3e-6);
      }
  }

  TEST_CASE("a token that sees nothing gives zero") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
      INFO(variant.name);
      Random random(8);
      AttentionCase c(random, {{5}, 2, 3, 32, 8, 4});
      c.visible = {0, 5};
      const Values o = c.run(variant, false);
      for (int i = 0; i < 3 * 32; ++i) CHECK(o[i] == 0);
      for (int i = 3 * 32; i < 6 * 32; ++i) CHECK(std::isfinite(o[i]));
    }
  }

  TEST_CASE("what lies in unused and unselected rows does not matter (IDX-11)") {
    for (const int length : {1, 63, 64, 65, 200})
      for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
        INFO(variant.name, " length ", length);
        Random random(3);
        AttentionCase c(random, {{length, length + 1}, 2, 4, 32, 8, 20});
        const Values selected = c.run(variant, true), visible = c.run(variant, false);
        c.latents.fill_unused(0);
        CHECK(c.run(variant, true) == selected);
        CHECK(c.run(variant, false) == visible);
        for (int t = 0; t < 2; ++t)
          for (int p = 0; p < c.latents.length(t); ++p)
            if (std::find(c.selected.begin() + t * 20, c.selected.begin() + (t + 1) * 20, p) ==
                c.selected.begin() + (t + 1) * 20)
              std::fill_n(c.latents.row(t, p), 40, NAN);
        CHECK(c.run(variant, true) == selected);
      }
  }

  TEST_CASE("scores far beyond the range of exp") {
    for (const auto& variant : variants(&KernelTable::sparse_attention))
      for (const float scale : {200.f, -200.f, 0.f}) {
        INFO(variant.name, " scale ", scale);
        Random random(3);
        AttentionCase c(random, {{150}, 2, 3, 32, 8, 90});
        c.scale = scale;
        const Values o = c.run(variant, true);
        for (float value : o) CHECK(std::isfinite(value));
        if (scale == 0) CHECK(relative_error(o, c.run(kReference, true)) < 3e-6);
      }
  }

  TEST_CASE("positions beyond 32768 and 65536 (IDX-12)") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
      INFO(variant.name);
      Random random(3);
      AttentionCase c(random, {{65600}, 1, 1, 4, 0, 2});
      c.visible = {65600}, c.scale = 1;
      for (const int p : {32767, 32768, 32769, 65535, 65536, 65599}) {
        c.selected = {17, p};
        c.q_latent = {1, 0, 0, 0};
        c.latents.row(0, 17)[0] = 0;
        Values want(c.latents.row(0, p), c.latents.row(0, p) + 4);
        want[0] = 200;
        c.latents.row(0, p)[0] = 200;
        CHECK(c.run(variant, true) == want);
      }
    }
  }

  TEST_CASE("pages beyond 2 and 4 GiB, 2^32 floats, and page 65536 (IDX-16)") {
    if (!reaches_far_pages()) return;
    for (const auto layout : {FarPages::Layout::wide, FarPages::Layout::packed})
      for (const auto& variant : implementations(&KernelTable::sparse_attention)) {
        INFO(variant.name);
        Random random(5);
        AttentionCase c(random, {{4 * kPageSize + 9}, 3, 4, 32, 8, 100});
        FarPages far(c.latents, 0, layout);
        REQUIRE(far.mapped());
        for (const bool select : {true, false}) {
          Values o = poisoned(3 * 4 * 32);
          SparseAttentionArgs args = c.args(o, select);
          args.latents = far.rows();
          SerialQueue queue;
          variant.run(args, queue);
          CHECK(o == c.run(variant, select));
        }
      }
  }

  TEST_CASE("a token alone, in a batch and on other threads gives the same bits") {
    for (const auto& variant : implementations(&KernelTable::sparse_attention))
      for (const bool select : {true, false}) {
        INFO(variant.name, " select ", select);
        Random random(11);
        AttentionCase c(random, {{65, 200, 130}, 40, 33, 48, 16, 70});
        const Values together = c.run(variant, select);
        const size_t size = 33 * 48;
        for (const int threads : {1, 2, 16, 200}) {
          BackwardQueue backward(threads);
          CHECK(c.run(variant, select, backward) == together);
          for (const int t : {0, 13, 39}) {
            Values alone = poisoned(size);
            SparseAttentionArgs args = c.args(alone, select);
            args.q_latent += t * size, args.q_rope += t * args.q_rope_token_stride;
            args.sequence_of += t, args.visible += t, args.tokens = 1;
            if (select) args.selected += t * args.top_k;
            variant.run(args, backward);
            CHECK(alone == Values(together.begin() + t * size, together.begin() + (t + 1) * size));
          }
        }
      }
  }
}
