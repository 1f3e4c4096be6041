#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values turned(Values x, RopeKind kind, const Values& frequencies, const std::vector<int32_t>& positions,
              int heads, float amplitude = 1) {
  const int dim = 2 * int(frequencies.size());
  BackwardQueue queue;
  plain_kernels().rope({x.data(), positions.data(), frequencies.data(), int64_t(heads) * dim, dim,
                        int(positions.size()), heads, dim, kind, amplitude},
                       queue);
  return x;
}

}  // namespace

TEST_SUITE("kernels/rope") {
  TEST_CASE("the values worked out by hand, in pairs and in halves") {
    const Values x = {1, 2, 3, 4}, frequencies = {1, 0.1f};
    const Values pairs = {-1.272233f, -1.838865f, 1.683929f, 4.707907f};
    const Values halves = {-1.413353f, 0.728592f, -2.828857f, 4.412386f};
    CHECK(relative_error(turned(x, RopeKind::pairs, frequencies, {3}, 1), pairs) < 1e-6);
    CHECK(relative_error(turned(x, RopeKind::halves, frequencies, {3}, 1), halves) < 1e-6);
    CHECK(turned(x, RopeKind::pairs, frequencies, {0}, 1) == x);
    CHECK(turned(x, RopeKind::halves, frequencies, {0}, 1, 2) == Values{2, 4, 6, 8});
  }

  TEST_CASE("heads and tokens may lie apart; what lies between is left alone") {
    Values x(2 * 11, NAN);
    const Values frequencies = {0.5f};
    for (int t = 0; t < 2; ++t)
      for (int h = 0; h < 3; ++h) x[t * 11 + h * 3] = 1, x[t * 11 + h * 3 + 1] = 0;
    const std::vector<int32_t> positions = {2, 1'000'000};
    SerialQueue queue;
    plain_kernels().rope(
        {x.data(), positions.data(), frequencies.data(), 11, 3, 2, 3, 2, RopeKind::halves, 1}, queue);
    for (int t = 0; t < 2; ++t) {
      const double angle = 0.5 * positions[t];
      for (int h = 0; h < 3; ++h) {
        CHECK(x[t * 11 + h * 3] == doctest::Approx(std::cos(angle)).epsilon(1e-6));
        CHECK(x[t * 11 + h * 3 + 1] == doctest::Approx(std::sin(angle)).epsilon(1e-6));
        CHECK(std::isnan(x[t * 11 + h * 3 + 2]));
      }
    }
  }

  TEST_CASE("the product of two turned rows depends on their distance alone") {
    Random random(1);
    Values frequencies(32);
    fill_rope_frequencies(frequencies.data(), 64, 10000, {});
    const Values q = random.normals(64), k = random.normals(64);
    for (const RopeKind kind : {RopeKind::pairs, RopeKind::halves}) {
      const auto score = [&](int32_t at_q, int32_t at_k) {
        const Values a = turned(q, kind, frequencies, {at_q}, 1), b = turned(k, kind, frequencies, {at_k}, 1);
        double sum = 0;
        for (int d = 0; d < 64; ++d) sum += double(a[d]) * b[d];
        return sum;
      };
      CHECK(score(40, 33) == doctest::Approx(score(7, 0)).epsilon(1e-4));
      CHECK(std::abs(score(40, 33) - score(40, 20)) > 1e-2);
    }
  }

  TEST_CASE("YaRN gives the published frequencies") {
    struct Row {
      double theta, length, factor;
      bool truncate;
      float f10, f16, f20, f31;
    };
    for (const Row& row :
         {Row{1e4, 4096, 40, true, 5.623413e-2f, 5.5e-3f, 7.905694e-4f, 3.333804e-6f},
          Row{1.6e5, 65536, 16, true, 2.364354e-2f, 2.265625e-3f, 2.969778e-4f, 5.680529e-7f},
          Row{1.5e5, 4096, 32, false, 1.9335e-2f, 4.564839e-4f, 1.818834e-5f, 3.023511e-7f}}) {
      Values f(32);
      fill_rope_frequencies(f.data(), 64, row.theta,
                            {.factor = row.factor, .original_context = row.length, .truncate = row.truncate});
      CHECK(f[0] == 1);
      for (const auto& [found, expected] : {std::pair{f[10], row.f10}, std::pair{f[16], row.f16},
                                            std::pair{f[20], row.f20}, std::pair{f[31], row.f31}})
        CHECK(found == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}
