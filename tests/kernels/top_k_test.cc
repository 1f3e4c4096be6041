#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

using Positions = std::vector<int32_t>;

Positions run(const Variant<TopKArgs>& variant, const Values& scores, int k, int visible = -1) {
  const std::vector<int32_t> seen = {visible < 0 ? int32_t(scores.size())
                                                 : visible};  // a GPU cannot read the stack
  Positions selected(size_t(k) + 1, 12345);
  SerialQueue queue;
  variant.run({scores.data(), seen.data(), selected.data(), int64_t(scores.size()), 1, k}, queue);
  CHECK(selected.back() == 12345);  // nothing is written behind the slots
  selected.pop_back();
  return selected;
}

const Variant<TopKArgs> kReference{"ref", ref::top_k};

}  // namespace

TEST_SUITE("kernels/top_k") {
  TEST_CASE("every implementation gives the positions worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::top_k)) {
      INFO(variant.name);
      CHECK(run(variant, {1, 5, 3, 5, 2}, 3) == Positions{1, 2, 3});
      CHECK(run(variant, {1, 5, 3, 5, 2}, 1) == Positions{1});  // the lower of the two fives
      CHECK(run(variant, {1, 5, 3, 5, 2}, 7) == Positions{0, 1, 2, 3, 4, -1, -1});
      CHECK(run(variant, {1, 5, 3, 9, 9}, 2, 3) == Positions{1, 2});  // 9 is not visible
      CHECK(run(variant, {1, 5, 3}, 2, 0) == Positions{-1, -1});
      CHECK(run(variant, {0.f, -0.f, 0.f, -1}, 2) == Positions{0, 1});  // -0 and 0 tie
      CHECK(run(variant, {-0.f, 0.f, -1}, 1) == Positions{0});
      CHECK(run(variant, {-1e-45f, 1e-45f, 0}, 2) == Positions{1, 2});  // subnormals count
      CHECK(run(variant, {-3, -1, -2, -5}, 2) == Positions{1, 2});
    }
  }

  TEST_CASE("many rows of uneven lengths, and rows that no block holds") {
    struct Shape {
      int tokens, stride, top_k;
    };
    for (const Shape& shape : {Shape{70, 5000, 257}, {3, 9001, 2048}, {2, 400000, 300}, {65, 1200, 1024}})
      for (const auto& variant : implementations(&KernelTable::top_k)) {
        INFO(variant.name, " tokens ", shape.tokens, " stride ", shape.stride);
        Random random(13);
        Values scores = random.normals(size_t(shape.tokens) * shape.stride);
        for (float& score : scores)
          if (random.integer(0, 2) == 0) score = float(random.integer(-3, 2));  // ties, some at the border
        std::vector<int32_t> visible;
        for (int t = 0; t < shape.tokens; ++t)
          visible.push_back(t % 4 == 0 ? shape.stride : int32_t(random.integer(0, shape.stride)));
        const auto select = [&](void (*kernel)(const TopKArgs&, Queue&)) {
          Positions selected(size_t(shape.tokens) * shape.top_k, 12345);
          SerialQueue queue;
          kernel({scores.data(), visible.data(), selected.data(), shape.stride, shape.tokens, shape.top_k},
                 queue);
          return selected;
        };
        CHECK(select(variant.run) == select(ref::top_k));
      }
  }

  TEST_CASE("a guess never changes what is selected, and the next step may begin with what it leaves") {
    constexpr int kTokens = 5, kContext = 20000, kTopK = 700;
    Random random(29);
    std::vector<int32_t> visible = {kContext, 12345, 701, 700, kContext};
    std::vector<Values> steps;
    for (const float scale : {1.f, 1.1f, 0.02f, -3.f, 50.f}) {  // the border moves up and down
      steps.push_back(random.normals(size_t(kTokens) * kContext, scale));
      for (float& score : steps.back())
        if (random.integer(0, 9) == 0) score = random.integer(0, 1) ? NAN : 0.f;
    }
    for (const auto& variant : implementations(&KernelTable::top_k))
      for (const uint32_t first : {0u, 1u, 0x80000000u, 0xbf9fffffu, 0xc0123456u, 0xffffffffu}) {
        INFO(variant.name, " guess ", first);
        std::vector<uint32_t> guesses(kTokens, first);
        for (const Values& scores : steps) {
          Positions selected(size_t(kTokens) * kTopK, 12345), want = selected;
          SerialQueue queue;
          variant.run(
              {scores.data(), visible.data(), selected.data(), kContext, kTokens, kTopK, guesses.data()},
              queue);
          ref::top_k({scores.data(), visible.data(), want.data(), kContext, kTokens, kTopK}, queue);
          CHECK(selected == want);
        }
      }
  }

  TEST_CASE("NaN loses against every number, also against -inf") {
    const float inf = INFINITY;
    for (const auto& variant : implementations(&KernelTable::top_k))
      for (const float nan : {NAN, -NAN}) {
        INFO(variant.name);
        CHECK(run(variant, {nan, -inf, nan, 3, inf}, 2) == Positions{3, 4});
        CHECK(run(variant, {nan, -inf, nan, 3, inf}, 3) == Positions{1, 3, 4});
        CHECK(run(variant, {nan, -inf, nan, 3, inf}, 4) == Positions{0, 1, 3, 4});
        CHECK(run(variant, {nan, -inf, nan, nan}, 2) == Positions{0, 1});
        CHECK(run(variant, Values(40, nan), 3) == Positions{0, 1, 2});
        CHECK(run(variant, Values(40, -inf), 3) == Positions{0, 1, 2});
        CHECK(run(variant, Values(40, inf), 3) == Positions{0, 1, 2});
      }
  }

  TEST_CASE("8220 exact zeros tie behind 100 winners (IDX-01)") {
    for (const float winner : {1.f, INFINITY}) {
      Random random(2);
      Values scores(8320, 0.f);
      Positions winners;
      while (winners.size() < 100) {
        const int32_t p = int32_t(random.integer(0, 8319));
        if (scores[p] == 0) scores[p] = winner, winners.push_back(p);
      }
      Positions want = winners;
      for (int32_t p = 0; want.size() < 2048; ++p)
        if (scores[p] == 0) want.push_back(p);
      std::sort(want.begin(), want.end());
      for (const auto& variant : implementations(&KernelTable::top_k)) {
        INFO(variant.name);
        CHECK(run(variant, scores, 2048) == want);
      }
    }
  }

  TEST_CASE("the same list a hundred times, on any thread (IDX-02)") {
    Random random(2);
    const int tokens = 5, context = 700, k = 96;
    Values scores = random.normals(size_t(tokens) * context);
    for (float& score : scores) score = std::max(0.f, std::round(4 * score));
    const std::vector<int32_t> visible = {700, 699, 97, 96, 5};
    for (const auto& variant : implementations(&KernelTable::top_k)) {
      INFO(variant.name);
      Positions first;
      for (int i = 0; i < 100; ++i) {
        Positions selected(size_t(tokens) * k, 99999);
        SerialQueue serial;
        BackwardQueue backward;
        variant.run({scores.data(), visible.data(), selected.data(), context, tokens, k},
                    i % 2 ? static_cast<Queue&>(backward) : serial);
        if (i == 0) first = selected;
        CHECK(selected == first);
      }
      for (int t = 0; t < tokens; ++t)  // a token alone
        CHECK(run(variant, Values(scores.begin() + t * context, scores.begin() + (t + 1) * context), k,
                  visible[t]) == Positions(first.begin() + t * k, first.begin() + (t + 1) * k));
    }
  }

  TEST_CASE("every variant agrees with the reference at every length and many sizes (IDX-09)") {
    for (const auto& variant : variants(&KernelTable::top_k)) {
      INFO(variant.name);
      Random random(4);
      for (int length = 1; length <= 300; ++length)
        for (const int k : {1, 2, 31, 64, 127}) {
          INFO("length ", length, " k ", k);
          Values scores = random.normals(length);
          if (length % 3 == 0)  // many ties
            for (float& score : scores) score = std::round(score);
          if (length % 7 == 0) scores[length / 2] = NAN;
          CHECK(run(variant, scores, k) == run(kReference, scores, k));
        }
      for (const int k : {1, 63, 64, 127, 512, 2047, 2048, 2049}) {
        INFO("k ", k);
        Values scores = random.normals(5000, 1e-3f);
        for (size_t p = 0; p < scores.size(); p += 3) scores[p] = std::max(scores[p], 0.f);
        for (int length : {k - 1, k, k + 1, 5000})
          CHECK(run(variant, scores, k, length) == run(kReference, scores, k, length));
      }
    }
  }

  TEST_CASE("scores that differ in their last bit only") {
    for (const auto& variant : variants(&KernelTable::top_k)) {
      INFO(variant.name);
      Random random(4);
      for (const float sign : {1.f, -1.f}) {
        Values scores(1000);
        for (float& score : scores) score = sign * bits_to_f32(0x3f800000u + uint32_t(random.integer(0, 40)));
        for (int k : {1, 17, 500, 999}) CHECK(run(variant, scores, k) == run(kReference, scores, k));
        for (float& score : scores)
          score = sign * bits_to_f32(0x3f800000u + uint32_t(random.integer(0, 1 << 21)));
        for (int k : {1, 17, 500, 999}) CHECK(run(variant, scores, k) == run(kReference, scores, k));
      }
    }
  }

  TEST_CASE("a context of a million, positions beyond 32768 and 65536 (IDX-12)") {
    const int context = 1 << 20;
    Random random(6);
    Values scores(context);
    for (float& score : scores) score = random.uniform(-1, 1);
    for (int p : {0, 32767, 32768, 32769, 65535, 65536, context - 1}) scores[p] = 2;
    for (const auto& variant : variants(&KernelTable::top_k)) {
      INFO(variant.name);
      CHECK(run(variant, scores, 7) == Positions{0, 32767, 32768, 32769, 65535, 65536, context - 1});
    }
    CHECK(run({"best", cpu_kernels().top_k}, scores, 2048) == run(kReference, scores, 2048));
  }
}
