#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "tests/support/queues.h"
#include "tests/support/values.h"

using namespace dsa;
using namespace dsa::test;

namespace {

Values run(const Variant<AttnResidualArgs>& variant, const std::vector<Values>& sources, const Values& query,
           Queue& queue, int first = 0, int tokens = -1) {
  const int dim = int(query.size());
  if (tokens < 0) tokens = int(sources[0].size()) / dim;
  std::vector<const float*> pointers;
  for (const Values& source : sources) pointers.push_back(source.data() + size_t(first) * dim);
  Values y = poisoned(size_t(tokens) * dim);
  variant.run({pointers.data(), query.data(), y.data(), int(sources.size()), tokens, dim, 1e-5f}, queue);
  return y;
}

}  // namespace

TEST_SUITE("kernels/attn_residual") {
  TEST_CASE("every implementation gives the value worked out by hand") {
    for (const auto& variant : implementations(&KernelTable::attn_residual)) {
      INFO(variant.name);
      SerialQueue queue;
      // w = (1, 2), r = (0.5, -0.25). Probabilities 0.174593, 0.585876, 0.239531 over the raw sources.
      const Values y = run(variant, {{1, 2}, {3, -1}, {0.5f, 0.5f}}, {0.5f, -0.5f}, queue);
      CHECK(y[0] == doctest::Approx(2.051987).epsilon(1e-6));
      CHECK(y[1] == doctest::Approx(-0.116926).epsilon(1e-5));
      CHECK(run(variant, {{7, -3}}, {0.5f, 9}, queue) == Values{7, -3});  // one source is itself
    }
  }

  TEST_CASE("every variant agrees with the reference; a token alone, on any thread: the same bits") {
    for (const auto& [num_sources, tokens, dim] :
         {std::array{1, 1, 1}, {2, 3, 17}, {9, 1, 7168}, {9, 3, 2500}, {64, 2, 300}, {5, 33, 64}})
      for (const auto& variant : variants(&KernelTable::attn_residual)) {
        INFO(variant.name, " sources ", num_sources, " dim ", dim);
        Random random(1);
        std::vector<Values> sources;
        for (int j = 0; j < num_sources; ++j)
          sources.push_back(random.normals(size_t(tokens) * dim, float(j + 1)));
        const Values query = random.normals(dim, 1 / std::sqrt(float(dim)));
        SerialQueue serial;
        BackwardQueue backward(16);
        const Values y = run(variant, sources, query, serial);
        CHECK(relative_error(y, run({"ref", ref::attn_residual}, sources, query, serial)) < 2e-6);
        CHECK(same_bits(run(variant, sources, query, backward), y));
        for (int t = 0; t < tokens; ++t)
          CHECK(same_bits(run(variant, sources, query, backward, t, 1), part(y, t, dim)));
      }
  }

  TEST_CASE("scores far apart and a source of zeros") {
    for (const auto& variant : implementations(&KernelTable::attn_residual)) {
      INFO(variant.name);
      SerialQueue queue;
      const Values y = run(variant, {{0, 0}, {1, 1}, {-1, -1}}, {300, 300}, queue);
      CHECK(y == Values{1, 1});
    }
  }
}
