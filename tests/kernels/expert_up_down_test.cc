// expert_up and expert_down: experts of few tokens.
#include <doctest/doctest.h>

#include <numeric>

#include "kernels/expert_down/expert_down.h"
#include "kernels/expert_up/expert_up.h"
#include "tests/support/gpu_rounding.h"
#include "tests/support/queues.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

constexpr Route kRoutes[] = {Route::exact, Route::fast};

struct ExpertsCase {
  int tokens, experts, top_k, width, dim;
  Values x, gate, up, weights, shared, addend;
  std::vector<int32_t> ids;
  std::vector<uint8_t> blocks, scales;
  std::vector<ExpertMatrix> gates, ups, downs;

  ExpertsCase(int num_tokens, int num_experts, int k, int in_dim, int expert_dim)
      : tokens(num_tokens), experts(num_experts), top_k(k), width(in_dim), dim(expert_dim) {
    Random random(uint64_t(width) * 13 + uint64_t(dim) + uint64_t(tokens));
    x = random.normals(size_t(tokens) * (width + 4));
    gate = random.normals(size_t(pairs()) * dim), up = random.normals(size_t(pairs()) * dim);
    weights = random.normals(pairs());
    shared = random.normals(size_t(tokens) * width), addend = random.normals(size_t(tokens) * width);
    for (int t = 0; t < tokens; ++t) {
      std::vector<int32_t> all(size_t(experts), 0);
      std::iota(all.begin(), all.end(), 0);
      for (int i = 0; i < top_k; ++i) std::swap(all[i], all[size_t(random.integer(i, experts - 1))]);
      ids.insert(ids.end(), all.begin(), all.begin() + top_k);
    }
    const size_t matrix = size_t(width) * dim;
    blocks.resize(3 * experts * matrix / 2), scales.resize(3 * experts * matrix / 32);
    for (uint8_t& byte : blocks) byte = uint8_t(random.integer(0, 255));
    for (uint8_t& code : scales) code = uint8_t(random.integer(120, 131));
    for (int i = 0; i < 3 * experts; ++i) {
      ExpertMatrix m;
      m.data = blocks.data() + i * matrix / 2, m.scales = scales.data() + i * matrix / 32;
      (i % 3 == 0 ? gates : i % 3 == 1 ? ups : downs).push_back(m);
    }
  }
  int pairs() const { return tokens * top_k; }

  struct Outcome {
    Values gate, up;
  };
  Outcome run_up(void (*kernel)(const ExpertUpArgs&, Queue&), Route route, int first = 0,
                 int count = -1) const {
    count = count < 0 ? tokens : count;
    const size_t size = size_t(count) * top_k * dim;
    Outcome outcome{poisoned(size), poisoned(size)};
    SerialQueue queue;
    kernel({x.data() + first * (width + 4), ids.data() + first * top_k, gates.data(), ups.data(),
            outcome.gate.data(), outcome.up.data(), width + 4, count, top_k, width, dim, route},
           queue);
    return outcome;
  }
  Values run_down(void (*kernel)(const ExpertDownArgs&, Queue&), Route route, bool adds, int first = 0,
                  int count = -1) const {
    count = count < 0 ? tokens : count;
    Values y = poisoned(size_t(count) * width);
    if (adds) std::copy_n(addend.data() + size_t(first) * width, y.size(), y.data());  // in place
    SerialQueue queue;
    const size_t inputs = size_t(first) * top_k * dim;
    kernel({gate.data() + inputs,
            up.data() + inputs,
            {ActivationKind::situ, 3, 2, 0},
            ids.data() + first * top_k,
            weights.data() + first * top_k,
            downs.data(),
            adds ? shared.data() + size_t(first) * width : nullptr,
            adds ? y.data() : nullptr,
            y.data(),
            count,
            top_k,
            dim,
            width,
            route},
           queue);
    return y;
  }
  // Inputs rounded as the fast route of a GPU rounds them.
  ExpertsCase rounded() const {
    ExpertsCase c = *this;
    for (int t = 0; t < tokens; ++t) round_for_mxfp4_on_gpu(&c.x[size_t(t) * (width + 4)], width);
    return c;
  }
};

struct Shape {
  int tokens, experts, top_k, width, dim;
};
constexpr Shape kShapes[] = {{1, 1, 1, 32, 32},   {1, 9, 8, 256, 160},   {3, 6, 2, 96, 64},
                             {8, 12, 3, 544, 96}, {2, 4, 4, 2112, 1056}, {1, 9, 8, 768, 512},
                             {2, 5, 3, 2304, 256}};

}  // namespace

TEST_SUITE("kernels/expert_up") {
  TEST_CASE("every variant agrees with the reference") {
    for (const Shape s : kShapes)
      for (const Route route : kRoutes)
        for (const auto& variant : implementations(&KernelTable::expert_up)) {
          INFO(variant.name, " at ", s.tokens, " of ", s.width, " -> ", s.dim);
          const ExpertsCase c(s.tokens, s.experts, s.top_k, s.width, s.dim);
          const bool rounds = route == Route::fast && variant.name == "cuda";
          const auto actual = c.run_up(variant.run, route),
                     expected = rounds ? c.rounded().run_up(ref::expert_up, Route::exact)
                                       : c.run_up(ref::expert_up, route);
          CHECK(relative_error(actual.gate, expected.gate) < 1e-5);
          CHECK(relative_error(actual.up, expected.up) < 1e-5);
        }
  }
  TEST_CASE("a token alone equals the same one among others, bit for bit") {
    for (const auto& variant : implementations(&KernelTable::expert_up)) {
      for (const auto& [width, dim] : {std::pair{288, 80}, {512, 256}}) {
        const ExpertsCase c(5, 7, 3, width, dim);
        const auto all = c.run_up(variant.run, Route::fast);
        for (int t = 0; t < 5; ++t)
          CHECK(same_bits(c.run_up(variant.run, Route::fast, t, 1).up, part(all.up, t, size_t(3) * dim)));
      }
    }
  }
}

TEST_SUITE("kernels/expert_down") {
  TEST_CASE("every variant agrees with the reference, exact") {
    for (const Shape s : kShapes)
      for (const bool adds : {false, true})
        for (const auto& variant : implementations(&KernelTable::expert_down)) {
          INFO(variant.name, " at ", s.tokens, " of ", s.dim, " -> ", s.width, adds ? ", adds" : "");
          const ExpertsCase c(s.tokens, s.experts, s.top_k, s.width, s.dim);
          CHECK(relative_error(c.run_down(variant.run, Route::exact, adds),
                               c.run_down(ref::expert_down, Route::exact, adds)) < 1e-5);
        }
  }
  TEST_CASE("the fast route is off by its rounding alone") {
    for (const Shape s : kShapes)
      for (const auto& variant : implementations(&KernelTable::expert_down)) {
        INFO(variant.name, " at ", s.tokens, " of ", s.dim, " -> ", s.width);
        const ExpertsCase c(s.tokens, s.experts, s.top_k, s.width, s.dim);
        CHECK(relative_error(c.run_down(variant.run, Route::fast, true),
                             c.run_down(ref::expert_down, Route::exact, true)) < 0.02);
      }
  }
  TEST_CASE("a token alone equals the same one among others, bit for bit") {
    for (const auto& variant : implementations(&KernelTable::expert_down)) {
      for (const auto& [width, dim] : {std::pair{288, 96}, {512, 256}}) {
        const ExpertsCase c(5, 7, 3, width, dim);
        const auto all = c.run_down(variant.run, Route::fast, true);
        for (int t = 0; t < 5; ++t)
          CHECK(same_bits(c.run_down(variant.run, Route::fast, true, t, 1), part(all, t, size_t(width))));
      }
    }
  }
}

}  // namespace dsa
