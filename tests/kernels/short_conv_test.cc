#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

struct Outcome {
  Values y, state;
};
bool operator==(const Outcome& a, const Outcome& b) {
  return same_bits(a.y, b.y) && same_bits(a.state, b.state);
}

// Sequences one behind the other, a NaN row after each; rows of x and y lie apart.
struct ShortConvCase {
  std::vector<int> rows, begins;
  int channels, width, total = 0;
  int64_t x_stride, y_stride;
  Values x, weight, state;

  ShortConvCase(Random& random, std::vector<int> rows_, int channels_, int width_)
      : rows(std::move(rows_)),
        channels(channels_),
        width(width_),
        x_stride(channels_ + 2),
        y_stride(channels_ + 1) {
    for (int n : rows) begins.push_back(total), total += n + 1;
    x = poisoned(total * x_stride);
    for (size_t i = 0; i < rows.size(); ++i)
      for (int t = begins[i]; t < begins[i] + rows[i]; ++t)
        for (int c = 0; c < channels; ++c) x[t * x_stride + c] = random.normal();
    weight = random.normals(size_t(channels) * width);
    state = random.normals(rows.size() * state_size());
  }
  size_t state_size() const { return size_t(width - 1) * channels; }

  using Kernel = void (*)(const ShortConvArgs&, Queue&);
  void call(Kernel kernel, const std::vector<ShortConvSequence>& sequences, Values& y, Queue& queue) const {
    kernel({x.data(), weight.data(), y.data(), sequences.data(), x_stride, y_stride, int(sequences.size()),
            channels, width},
           queue);
  }
  Outcome run(Kernel kernel, Queue& queue) const {
    Outcome outcome{poisoned(total * y_stride), poisoned(state.size())};
    std::vector<ShortConvSequence> sequences;
    for (size_t i = 0; i < rows.size(); ++i)
      sequences.push_back(
          {begins[i], rows[i], state.data() + i * state_size(), outcome.state.data() + i * state_size()});
    call(kernel, sequences, outcome.y, queue);
    return outcome;
  }
  // The first sequence in pieces.
  Outcome run_cut(Kernel kernel, const std::vector<int>& pieces) const {
    Outcome outcome{poisoned(total * y_stride), part(state, 0, state_size())};
    int begin = 0;
    for (int n : pieces) {
      Values next = poisoned(state_size());
      SerialQueue queue;
      call(kernel, {{begin, n, outcome.state.data(), next.data()}}, outcome.y, queue);
      outcome.state = next;
      begin += n;
    }
    return outcome;
  }
};

}  // namespace

TEST_SUITE("kernels/short_conv") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::short_conv)) {
      INFO(variant.name);
      Random random(1);
      ShortConvCase c(random, {2}, 1, 4);
      c.x_stride = c.y_stride = 1, c.weight = {1, 10, 100, 1000}, c.state = {0.003f, 0.002f, 0.001f};
      c.x = {0.004f, -0.005f, NAN};
      SerialQueue queue;
      const Outcome outcome = c.run(variant.run, queue);
      const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
      CHECK(outcome.y[0] == doctest::Approx(silu(0.003 + 0.02 + 0.1 + 4)));
      CHECK(outcome.y[1] == doctest::Approx(silu(0.002 + 0.01 + 0.4 - 5)));
      CHECK(outcome.state == Values{0.001f, 0.004f, -0.005f});
    }
  }

  TEST_CASE("every variant agrees with the reference, on any thread") {
    struct Shape {
      std::vector<int> rows;
      int channels, width;
    };
    for (const Shape& s : {Shape{{1}, 1, 1},
                           {{1, 2, 3, 4, 0, 7}, 37, 4},
                           {{5}, 255, 2},
                           {{3, 1}, 257, 8},
                           {{20}, 1000, 4},
                           {{2, 9}, 512, 3}})
      for (const auto& variant : variants(&KernelTable::short_conv)) {
        INFO(variant.name, " channels ", s.channels, " width ", s.width);
        Random random(2);
        const ShortConvCase c(random, s.rows, s.channels, s.width);
        SerialQueue serial;
        BackwardQueue backward;
        const Outcome outcome = c.run(variant.run, serial), want = c.run(ref::short_conv, serial);
        CHECK(relative_error(outcome.y, want.y) < 1e-6);
        CHECK(same_bits(outcome.state, want.state));
        CHECK(c.run(variant.run, backward) == outcome);
      }
  }

  TEST_CASE("prompts of 1 to 4 tokens, then 8 single steps, and any other cut: the same bits (LIN-07)") {
    for (const auto& variant : implementations(&KernelTable::short_conv))
      for (const int width : {2, 4, 8}) {
        Random random(3);
        const ShortConvCase c(random, {12}, 40, width);
        SerialQueue queue;
        const Outcome whole = c.run(variant.run, queue);
        for (int prompt = 1; prompt <= 4; ++prompt) {
          INFO(variant.name, " width ", width, " prompt ", prompt);
          std::vector<int> pieces(9 + 4 - prompt, 1);
          pieces[0] = prompt;
          CHECK(c.run_cut(variant.run, pieces) == whole);
        }
        CHECK(c.run_cut(variant.run, {5, 0, 7}) == whole);
        CHECK(c.run_cut(variant.run, {2, 2, 3, 4, 1}) == whole);
      }
  }

  TEST_CASE("before the start there are zeros") {
    for (const auto& variant : implementations(&KernelTable::short_conv)) {
      INFO(variant.name);
      Random random(4);
      ShortConvCase c(random, {2}, 3, 4);
      std::fill(c.state.begin(), c.state.end(), 0.f);
      SerialQueue queue;
      const Outcome outcome = c.run(variant.run, queue);
      for (int d = 0; d < 3; ++d) {
        CHECK(outcome.state[d] == 0);
        CHECK(outcome.state[3 + d] == c.x[d]);
        CHECK(outcome.state[6 + d] == c.x[c.x_stride + d]);
      }
    }
  }
}
