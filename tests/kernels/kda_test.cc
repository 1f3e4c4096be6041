#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Shape {
  std::vector<int> rows;  // of each sequence
  int heads, k_dim, v_dim;
};

struct Outcome {
  Values o, state;
};

double error(const Outcome& actual, const Outcome& expected) {
  return std::max(relative_error(actual.o, expected.o), relative_error(actual.state, expected.state));
}
// GPUs drop the low bits of factors.
double fast_tolerance(const std::string& variant) { return variant == "cuda" ? 4e-5 : 5e-6; }
bool operator==(const Outcome& a, const Outcome& b) {
  return same_bits(a.o, b.o) && same_bits(a.state, b.state);
}

// Inputs as the gate makes them: normalised keys, scaled queries, gates and betas from the legal range. The
// rows of q, k and v lie apart with NaN between, and NaN rows follow each sequence.
struct KdaCase {
  Route route = Route::exact;
  Shape shape;
  int64_t stride;
  int total = 0;
  Values q, k, v, g, beta, state;
  std::vector<int> begins;

  KdaCase(Random& random, const Shape& s, float mean_gate = -1) : shape(s) {
    for (int rows : s.rows) begins.push_back(total), total += rows + 1;
    const int dim = std::max(s.k_dim, s.v_dim);
    stride = int64_t(s.heads) * dim + 3;
    q = poisoned(total * stride), k = q, v = q;
    g = poisoned(size_t(total) * s.heads * s.k_dim), beta = poisoned(size_t(total) * s.heads);
    for (size_t i = 0; i < s.rows.size(); ++i)
      for (int t = begins[i]; t < begins[i] + s.rows[i]; ++t)
        for (int h = 0; h < s.heads; ++h) {
          unit(random, &q[t * stride + h * s.k_dim], 1 / std::sqrt(float(s.k_dim)));
          unit(random, &k[t * stride + h * s.k_dim], 1);
          for (int j = 0; j < s.v_dim; ++j) v[t * stride + h * s.v_dim + j] = random.normal();
          for (int d = 0; d < s.k_dim; ++d)
            g[(size_t(t) * s.heads + h) * s.k_dim + d] =
                std::clamp(mean_gate * random.uniform(0.5f, 1.5f), -5.f, 0.f);
          beta[size_t(t) * s.heads + h] = random.uniform(0.05f, 0.95f);
        }
    state = random.normals(s.rows.size() * s.heads * s.k_dim * s.v_dim, 0.3f);
  }
  void unit(Random& random, float* x, float length) const {
    double squares = 0;
    for (int d = 0; d < shape.k_dim; ++d) x[d] = random.normal(), squares += double(x[d]) * x[d];
    for (int d = 0; d < shape.k_dim; ++d) x[d] = float(x[d] * length / std::sqrt(squares));
  }

  using Kernel = void (*)(const KdaArgs&, Queue&);
  size_t state_size() const { return size_t(shape.heads) * shape.k_dim * shape.v_dim; }
  KdaArgs args(const std::vector<KdaSequence>& sequences, Values& o) {
    return {q.data(),         k.data(),    v.data(), g.data(), beta.data(),           o.data(),
            sequences.data(), stride,      stride,   stride,   int(sequences.size()), shape.heads,
            shape.k_dim,      shape.v_dim, total,    route};
  }
  Values no_output() const { return poisoned(size_t(total) * shape.heads * shape.v_dim); }

  Outcome run(Kernel kernel) {
    SerialQueue queue;
    return run(kernel, queue);
  }
  Outcome run(Kernel kernel, Queue& queue) {
    Outcome result{no_output(), poisoned(state.size())};
    std::vector<KdaSequence> sequences;
    for (size_t i = 0; i < shape.rows.size(); ++i)
      sequences.push_back(
          {begins[i], shape.rows[i], &state[i * state_size()], &result.state[i * state_size()]});
    kernel(args(sequences, result.o), queue);
    return result;
  }
  // The first sequence in pieces of the given lengths, each with its own kernel.
  Outcome run_cut(const std::vector<std::pair<int, Kernel>>& pieces) {
    Outcome result{no_output(), part(state, 0, state_size())};
    int begin = 0;
    for (const auto& [rows, kernel] : pieces) {
      Values next = poisoned(state_size());
      const std::vector<KdaSequence> sequences = {{begin, rows, result.state.data(), next.data()}};
      SerialQueue queue;
      kernel(args(sequences, result.o), queue);
      result.state = next;
      begin += rows;
    }
    CHECK(begin == shape.rows[0]);
    return result;
  }
};

}  // namespace

TEST_SUITE("kernels/kda") {
  TEST_CASE("two tokens give the values worked out by hand") {
    Random random(1);
    for (auto member : {&KernelTable::kda_step, &KernelTable::kda_chunk})
      for (const auto& variant : implementations(member)) {
        INFO(variant.name);
        KdaCase c(random, {{2}, 1, 2, 2});
        const float root = std::sqrt(0.5f);
        const Values q = {0.6f * root, 0.8f * root, 0, root}, k = {1, 0, root, root}, v = {1, 2, 3, -1};
        for (int t = 0; t < 2; ++t)
          for (int d = 0; d < 2; ++d)
            c.q[t * c.stride + d] = q[2 * t + d], c.k[t * c.stride + d] = k[2 * t + d],
                               c.v[t * c.stride + d] = v[2 * t + d];
        std::copy_n(Values{-0.1f, -0.2f, -1, -0.5f}.begin(), 4, c.g.begin());
        c.beta[0] = 0.5f, c.beta[1] = 0.25f;
        c.state = Values(4, 0.f);
        const Outcome one = [&] {
          KdaCase first = c;
          first.shape.rows = {1};
          return first.run(variant.run);
        }();
        CHECK(relative_error(part(one.o, 0, 2), {0.212132f, 0.424264f}) < 3e-6);
        CHECK(relative_error(one.state, {0.5f, 1, 0, 0}) < 3e-6);
        const Outcome two = member == &KernelTable::kda_chunk
                                ? c.run(variant.run)
                                : c.run_cut({{1, variant.run}, {1, variant.run}});
        CHECK(relative_error(part(two.o, 1, 2), {0.358742f, -0.157516f}) < 3e-6);
        CHECK(relative_error(two.state, {0.691277f, 0.145118f, 0.507338f, -0.222762f}) < 3e-6);
      }
  }

  TEST_CASE("chunk: gates that are not bounded below, in some channels or in all") {
    for (const float strong : {-8.f, -40.f, -300.f})
      for (const int every : {1, 37, 1000})
        for (const auto& variant : variants(&KernelTable::kda_chunk)) {
          INFO(variant.name, " gate ", strong, " in one of ", every);
          Random random(11);
          KdaCase c(random, {{40, 16}, 2, 48, 32});
          for (size_t i = 0; i < c.g.size(); i += size_t(every)) c.g[i] *= -strong;
          const Outcome outcome = c.run(variant.run);
          CHECK(error(outcome, c.run(ref::kda_chunk)) < 2e-5);
        }
  }

  TEST_CASE("step: every variant agrees with the reference (LIN-05: key and value widths differ)") {
    const Shape shapes[] = {{{1}, 1, 1, 1},        {{1, 1, 1}, 3, 64, 128}, {{1}, 2, 128, 64},
                            {{1, 1}, 2, 128, 128}, {{1}, 1, 31, 47},        {{1}, 1, 256, 240},
                            {{1}, 1, 300, 32},     {{1}, 1, 16, 300}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::kda_step)) {
        INFO(variant.name, " ", shape.k_dim, " x ", shape.v_dim);
        Random random(2);
        KdaCase c(random, shape);
        CHECK(error(c.run(variant.run), c.run(ref::kda_step)) < 2e-6);
      }
  }

  TEST_CASE("chunk: every variant agrees with the reference, ragged, poisoned around (LIN-04, LIN-05)") {
    const Shape shapes[] = {{{1}, 1, 1, 1},         {{17, 0, 1, 64, 5}, 2, 64, 128},
                            {{63, 65}, 3, 128, 64}, {{40}, 2, 31, 47},
                            {{33}, 1, 256, 240},    {{20}, 1, 300, 32},
                            {{20}, 1, 16, 300},     {{70}, 1, 48, 96},
                            {{50}, 2, 2, 2},        {{130, 2, 9}, 2, 32, 32},
                            {{500}, 1, 128, 128},   {{1000}, 1, 32, 48}};
    for (const Shape& shape : shapes)
      for (const auto& variant : variants(&KernelTable::kda_chunk)) {
        INFO(variant.name, " ", shape.k_dim, " x ", shape.v_dim);
        Random random(3);
        KdaCase c(random, shape);
        const Outcome expected = c.run(ref::kda_chunk);
        CHECK(error(c.run(variant.run), expected) < 5e-6);
        c.route = Route::fast;
        CHECK(error(c.run(variant.run), expected) < fast_tolerance(variant.name));
      }
  }

  TEST_CASE("chunk, the fast route: gates from none to the bound and beyond, and the same bits in a batch") {
    for (const auto& variant : variants(&KernelTable::kda_chunk)) {
      for (const float gate : {0.f, -0.01f, -0.7f, -5.0625f, -30.f}) {
        INFO(variant.name, " gate ", gate);
        Random random(14);
        KdaCase c(random, {{150, 1, 33, 16}, 2, 128, 96});
        c.route = Route::fast;
        for (size_t i = 0; i < c.g.size(); ++i)
          if (!std::isnan(c.g[i])) c.g[i] = gate * (i % 3 == 0 ? 0.25f : 1.f);
        const Outcome outcome = c.run(variant.run);
        CHECK(error(outcome, c.run(ref::kda_chunk)) < fast_tolerance(variant.name));
        CHECK(c.run(variant.run) == outcome);
        KdaCase last = c;
        last.shape.rows = {16}, last.begins = {c.begins[3]}, last.state = part(c.state, 3, c.state_size());
        const Outcome alone = last.run(variant.run);
        CHECK(same_bits(alone.state, part(outcome.state, 3, c.state_size())));
      }
    }
  }

  TEST_CASE("chunk: 280 consecutive lengths (LIN-19)") {
    for (const auto& variant : variants(&KernelTable::kda_chunk))
      for (int rows = 1; rows <= 280; ++rows) {
        INFO(variant.name, " rows ", rows);
        Random random(rows);
        KdaCase c(random, {{rows}, 1, 24, 20}, -0.2f);
        CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 5e-6);
      }
  }

  TEST_CASE("chunk: gates at the bound for whole chunks, and a sweep of mean gates (LIN-01)") {
    for (const auto& variant : variants(&KernelTable::kda_chunk)) {
      for (const float gate : {-5.f, -5.0625f, 0.f, -1e-6f}) {
        INFO(variant.name, " gate ", gate);
        Random random(4);
        KdaCase c(random, {{150}, 2, 64, 48});
        for (float& g : c.g)
          if (!std::isnan(g)) g = gate;
        CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 5e-6);
        // Half of the channels at the bound, the others open.
        for (size_t i = 0; i < c.g.size(); i += 2)
          if (!std::isnan(c.g[i])) c.g[i] = -1e-4f;
        CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 5e-6);
      }
      for (float mean = -0.5f; mean >= -5; mean -= 0.25f) {
        INFO(variant.name, " mean gate ", mean);
        Random random(5);
        KdaCase c(random, {{131}, 1, 128, 32}, mean);
        CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 5e-6);
      }
    }
  }

  TEST_CASE("chunk: tiny entries of keys under strong gates keep their precision") {
    for (const auto& variant : variants(&KernelTable::kda_chunk)) {
      INFO(variant.name);
      Random random(6);
      KdaCase c(random, {{96}, 1, 32, 32}, -4.5f);
      for (size_t i = 0; i < c.k.size(); ++i)
        if (i % 3 != 0) c.k[i] *= 1e-6f, c.q[i] *= 1e-6f;
      CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 5e-6);
    }
  }

  TEST_CASE("chunk: keys equal up to 1e-3 and beta near 1 (LIN-03)") {
    for (const auto& variant : variants(&KernelTable::kda_chunk))
      for (const float noise : {1e-3f, 0.f})
        for (const float gate : {-1e-3f, -0.05f, -1.f}) {
          INFO(variant.name, " noise ", noise, " gate ", gate);
          Random random(7);
          KdaCase c(random, {{80}, 1, 64, 32}, gate);
          const Values first(c.k.begin(), c.k.begin() + 64);
          for (int t = 0; t < 80; ++t) {
            for (int d = 0; d < 64; ++d) c.k[t * c.stride + d] = first[d] + noise / 8 * random.normal();
            c.beta[t] = 0.9999f;
          }
          CHECK(error(c.run(variant.run), c.run(ref::kda_chunk)) < 2e-5);
        }
  }

  TEST_CASE("any cut of 200 tokens gives the same outputs and state (LIN-05)") {
    const auto reference = ref::kda_chunk;
    for (const KernelVariant& kernels : kernel_variants()) {
      INFO(kernels.name);
      const auto chunk = kernels.table.kda_chunk, step = kernels.table.kda_step;
      Random random(8);
      KdaCase c(random, {{200}, 2, 64, 128}, -0.3f);
      const Outcome whole = c.run(chunk);
      CHECK(error(whole, c.run(reference)) < 5e-6);
      for (int cut = 1; cut < 200; cut += 9) {
        INFO("cut at ", cut);
        CHECK(error(c.run_cut({{cut, chunk}, {200 - cut, chunk}}), whole) < 1e-5);
      }
      std::vector<std::pair<int, KdaCase::Kernel>> steps(200, {1, step});
      CHECK(error(c.run_cut(steps), whole) < 1e-5);
      steps.assign(73, {1, step});
      steps.insert(steps.begin(), {127, chunk});
      CHECK(error(c.run_cut(steps), whole) < 1e-5);  // a prompt, then single tokens
      for (int i = 0; i < 5; ++i) {
        std::vector<std::pair<int, KdaCase::Kernel>> pieces;
        for (int left = 200; left > 0; left -= pieces.back().first)
          pieces.push_back({int(random.integer(1, std::min(left, 40))), chunk});
        CHECK(error(c.run_cut(pieces), whole) < 1e-5);
      }
    }
  }

  TEST_CASE("run after run, alone or in a batch, on any thread: the same bits (LIN-15)") {
    for (const auto& variant : variants(&KernelTable::kda_chunk)) {
      INFO(variant.name);
      Random random(9);
      KdaCase c(random, {{211, 15, 1, 64, 300, 7, 16, 90, 8, 33}, 2, 32, 32}, -0.5f);
      const Outcome first = c.run(variant.run);
      BackwardQueue backward;
      for (int i = 0; i < 10; ++i) {
        CHECK(c.run(variant.run) == first);
        CHECK(c.run(variant.run, backward) == first);
      }
      for (size_t i = 0; i < c.shape.rows.size(); ++i) {
        Values o = c.no_output(), next = poisoned(c.state_size());
        const std::vector<KdaSequence> alone = {
            {c.begins[i], c.shape.rows[i], &c.state[i * c.state_size()], next.data()}};
        variant.run(c.args(alone, o), backward);
        CHECK(same_bits(next, part(first.state, i, c.state_size())));
        const size_t row = size_t(c.shape.heads) * c.shape.v_dim, begin = c.begins[i] * row;
        const size_t end = begin + c.shape.rows[i] * row;
        CHECK(same_bits(Values(o.begin() + begin, o.begin() + end),
                        Values(first.o.begin() + begin, first.o.begin() + end)));
      }
    }
    for (const auto& variant : variants(&KernelTable::kda_step)) {
      INFO(variant.name);
      Random random(9);
      KdaCase c(random, {{1, 1, 1}, 5, 64, 80});
      const Outcome first = c.run(variant.run);
      BackwardQueue backward;
      CHECK(c.run(variant.run, backward) == first);
    }
  }

  TEST_CASE("a sequence without rows keeps its state") {
    for (const auto& variant : implementations(&KernelTable::kda_chunk)) {
      INFO(variant.name);
      Random random(10);
      KdaCase c(random, {{0}, 2, 32, 16});
      CHECK(same_bits(c.run(variant.run).state, c.state));
    }
  }
}
