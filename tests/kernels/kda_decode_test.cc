#include "kernels/kda_decode/kda_decode.h"

#include <doctest/doctest.h>

#include "tests/support/queues.h"
#include "tests/support/values.h"

namespace dsa {
namespace {

using namespace test;

// Sequences whose rows lie in some order, with rows between them that nobody may touch.
struct KdaDecodeCase {
  int sequences, heads, dim, width, channels, rows;
  float lower_bound;
  Values qkv, conv_weight, z, b, a_log, dt_bias, gate, norm, conv_state, state;

  KdaDecodeCase(int n, int num_heads, int head_dim, int conv_width, float bound)
      : sequences(n),
        heads(num_heads),
        dim(head_dim),
        width(conv_width),
        channels(num_heads * head_dim),
        rows(2 * n),
        lower_bound(bound) {
    Random random(uint64_t(n) * 31 + uint64_t(head_dim) * 7 + uint64_t(conv_width));
    qkv = random.normals(size_t(rows) * stride());
    conv_weight = random.normals(size_t(3) * channels * width, 0.5f);
    z = random.normals(size_t(rows) * channels), b = random.normals(size_t(rows) * heads);
    a_log = random.normals(heads, 0.3f), dt_bias = random.normals(channels);
    gate = random.normals(size_t(rows) * channels), norm = random.normals(dim);
    conv_state = random.normals(n * conv_size());
    state = random.normals(n * state_size(), 0.3f);
  }
  size_t stride() const { return size_t(3) * channels + 5; }
  size_t conv_size() const { return size_t(width - 1) * 3 * channels; }
  size_t state_size() const { return size_t(heads) * dim * dim; }
  int row(int i) const { return 2 * (sequences - 1 - i) + 1; }

  struct Outcome {
    Values o, conv, state;
  };
  Outcome run(void (*kernel)(const KdaDecodeArgs&, Queue&), int only = -1) const {
    Outcome result{poisoned(size_t(rows) * channels), poisoned(conv_state.size()), poisoned(state.size())};
    std::vector<ShortConvSequence> convs;
    std::vector<KdaSequence> states;
    for (int i = 0; i < sequences; ++i) {
      if (only >= 0 && i != only) continue;
      convs.push_back({row(i), 1, conv_state.data() + i * conv_size(), result.conv.data() + i * conv_size()});
      states.push_back({row(i), 1, state.data() + i * state_size(), result.state.data() + i * state_size()});
    }
    SerialQueue queue;
    kernel({qkv.data(), conv_weight.data(), z.data(), b.data(), a_log.data(), dt_bias.data(), gate.data(),
            norm.data(), convs.data(), states.data(), result.o.data(), int64_t(stride()), int(convs.size()),
            heads, dim, width, lower_bound, 1e-5f},
           queue);
    return result;
  }
};

}  // namespace

TEST_SUITE("kernels/kda_decode") {
  TEST_CASE("the value worked out by hand") {
    // One channel: x = 2 through a filter of 1 is silu(2) = 1.7616 in q, k and v; normed q and k are 1.
    for (const auto& variant : implementations(&KernelTable::kda_decode)) {
      INFO(variant.name);
      KdaDecodeCase c(1, 1, 1, 2, -1.f);
      for (int i = 0; i < 3; ++i) {
        c.qkv[c.stride() + i] = 2;
        c.conv_weight[2 * i] = 0, c.conv_weight[2 * i + 1] = 1;
      }
      c.a_log[0] = 0, c.dt_bias[0] = 0, c.z[1] = 0;  // g = -0.5
      c.b[1] = 0;                                    // beta = 0.5
      c.state[0] = 2, c.gate[1] = 0, c.norm[0] = 3;
      const auto outcome = c.run(variant.run);
      const double kept = 2 * std::exp(-0.5), state = kept + 0.5 * (2 / (1 + std::exp(-2.0)) - kept);
      CHECK(std::abs(outcome.state[0] - state) < 1e-5);
      CHECK(std::abs(outcome.o[1] - 1.5) < 1e-4);  // normed to 1, times 3, times sigmoid(0)
      CHECK(std::isnan(outcome.o[0]));
      for (int i = 0; i < 3; ++i) CHECK(outcome.conv[i] == 2);
    }
  }

  TEST_CASE("every variant agrees with the reference") {
    struct Shape {
      int sequences, heads, dim, width;
    };
    for (const Shape s : {Shape{1, 1, 1, 1},
                          {1, 2, 128, 4},
                          {3, 3, 64, 4},
                          {2, 2, 31, 3},
                          {2, 1, 17, 8},
                          {1, 2, 96, 2},
                          {2, 2, 100, 4},
                          {4, 1, 32, 4},
                          {1, 3, 20, 4}})
      for (const float bound : {0.f, -5.f})
        for (const auto& variant : implementations(&KernelTable::kda_decode)) {
          INFO(variant.name, " ", s.sequences, " x ", s.heads, " x ", s.dim, ", width ", s.width, ", ",
               bound);
          const KdaDecodeCase c(s.sequences, s.heads, s.dim, s.width, bound);
          const auto actual = c.run(variant.run), expected = c.run(ref::kda_decode);
          CHECK(relative_error(actual.o, expected.o) < 1e-5);
          CHECK(relative_error(actual.state, expected.state) < 1e-5);
          CHECK(same_bits(actual.conv, expected.conv));
        }
  }

  TEST_CASE("a sequence alone equals the same one among others, bit for bit") {
    for (const auto& variant : implementations(&KernelTable::kda_decode)) {
      INFO(variant.name);
      const KdaDecodeCase c(3, 2, 64, 4, 0);
      const auto all = c.run(variant.run);
      for (int i = 0; i < 3; ++i) {
        const auto one = c.run(variant.run, i);
        CHECK(same_bits(part(one.state, i, c.state_size()), part(all.state, i, c.state_size())));
        CHECK(same_bits(part(one.o, c.row(i), c.channels), part(all.o, c.row(i), c.channels)));
      }
    }
  }
}

}  // namespace dsa
