// Every kind of state that a session keeps: paged keys and values, pooled index keys with their open pools, beside latents
// and KDA. Each family gives the same in pieces, in company, after a step that failed and after a rewind.
#include <doctest/doctest.h>

#include <algorithm>

#include "golden/fixture.h"
#include "support/values.h"

namespace dsa::test {
namespace {

constexpr int kPrompt = 150;
constexpr double kTolerance = 3e-5;
const char* const kFamilies[] = {"gpt_oss", "glm5_next"};

LoadedModel load(const std::string& name) {
  auto model = load_model(DSA_SOURCE_DIR "/tests/golden/" + name + "/model-mxfp4", {.route = Route::exact});
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  return std::move(model).value();
}

std::vector<int32_t> prompt(int n, uint64_t seed = 3) {
  Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = int32_t(random.integer(0, 299));
  return tokens;
}

Values run(LoadedModel& model, SequenceState& sequence, const std::vector<int32_t>& tokens,
           const std::vector<int>& sizes) {
  Values logits;
  size_t at = 0;
  for (const int size : sizes) {
    auto result = append(model, sequence, tokens.data() + at, size);
    REQUIRE_MESSAGE(result.is_ok(), result.status().message());
    logits = std::move(result).value();
    at += size_t(size);
  }
  return logits;
}

struct Truth {
  Values logits;
  std::map<std::pair<int, int>, std::vector<int32_t>> sets;
};

Truth truth_of(LoadedModel& model, const std::vector<int32_t>& tokens, const std::vector<int>& sizes) {
  SelectionRecorder recorder;
  recorder.attach(*model.decoder);
  SequenceState sequence(*model.pool, int(tokens.size()));
  Truth truth;
  truth.logits = run(model, sequence, tokens, sizes);
  truth.sets = recorder.sets();
  model.decoder->observe_selection({});
  return truth;
}

}  // namespace

TEST_SUITE("model/state_kinds") {
  TEST_CASE("one append equals two at every split point, and token by token") {
    for (const char* name : kFamilies) {
      LoadedModel model = load(name);
      const auto tokens = prompt(kPrompt);
      const Truth whole = truth_of(model, tokens, {kPrompt});
      CHECK(whole.sets.empty() == (std::string(name) == "gpt_oss"));
      for (int split = 1; split <= kPrompt; split += split < 70 || split > 140 ? 1 : 7) {
        INFO(name, " split at ", split);
        const std::vector<int> sizes =
            split < kPrompt ? std::vector<int>{split, kPrompt - split} : std::vector<int>(kPrompt, 1);
        const Truth parts = truth_of(model, tokens, sizes);
        REQUIRE(relative_error(parts.logits, whole.logits) < kTolerance);
        REQUIRE(parts.sets == whole.sets);
      }
    }
  }

  TEST_CASE("pools of four: every set has its open pool, and whole pools beside it") {
    LoadedModel model = load("glm5_next");
    const Truth truth = truth_of(model, prompt(kPrompt), {kPrompt});
    for (const auto& [key, set] : truth.sets) {
      const int visible = key.second + 1, complete = visible / 4;
      INFO("layer ", key.first, " position ", key.second);
      REQUIRE(int(set.size()) == std::min(complete, 16) * 4 + visible % 4);
      for (size_t i = 0; i < set.size() - size_t(visible % 4); i += 4) {
        REQUIRE(set[i] % 4 == 0);
        REQUIRE(set[i + 3] == set[i] + 3);
      }
      if (visible % 4 != 0) REQUIRE(set.back() == key.second);
    }
  }

  TEST_CASE("batched with other sessions, each equals its run alone") {
    for (const char* name : kFamilies) {
      LoadedModel model = load(name);
      const int cached[] = {0, 101, 10, 66, 1}, fresh[] = {5, 20, 27, 1, 1};
      std::vector<std::vector<int32_t>> tokens;
      std::vector<Values> alone;
      std::vector<std::unique_ptr<SequenceState>> sequences;
      StepPlan plan;
      for (int i = 0; i < 5; ++i) {
        tokens.push_back(prompt(cached[i] + fresh[i], 100 + uint64_t(i)));
        alone.push_back(truth_of(model, tokens.back(), {cached[i] + fresh[i]}).logits);
        sequences.push_back(std::make_unique<SequenceState>(*model.pool, 200));
        if (cached[i]) run(model, *sequences.back(), tokens.back(), {cached[i]});
      }
      for (int i = 0; i < 5; ++i)
        plan.sequences.push_back(
            {sequences[size_t(i)].get(), tokens[size_t(i)].data() + cached[i], fresh[i], true});
      auto pages = model.pool->reserve(plan);
      REQUIRE(pages.is_ok());
      const auto logits = model.decoder->run(plan, *model.pool);
      REQUIRE(logits.is_ok());
      for (int i = 0; i < 5; ++i) {
        INFO(name, " session ", i);
        const float* row = logits.value().f32() + i * logits.value().stride[0];
        CHECK(relative_error(Values(row, row + logits.value().dim[1]), alone[size_t(i)]) < kTolerance);
      }
    }
  }

  TEST_CASE(
      "an uncommitted step leaves nothing behind, a rewind returns to its mark, at every place in a pool") {
    for (const char* name : kFamilies)
      for (const int at : {61, 62, 63, 64, 65, 66}) {
        INFO(name, " at ", at);
        LoadedModel model = load(name);
        const auto tokens = prompt(110), other = prompt(40, 9);
        const Values whole = truth_of(model, tokens, {at, 110 - at}).logits;
        const std::vector<int32_t> rest(tokens.begin() + at, tokens.end());
        SequenceState sequence(*model.pool, 200);
        run(model, sequence, tokens, {at});
        auto mark = sequence.mark();
        REQUIRE(mark.is_ok());
        {
          StepPlan plan;
          plan.sequences.push_back({&sequence, other.data(), 40, true});
          auto pages = model.pool->reserve(plan);
          REQUIRE(pages.is_ok());
          REQUIRE(model.decoder->run(plan, *model.pool).is_ok());
        }
        CHECK(run(model, sequence, rest, {110 - at}) == whole);
        sequence.rewind(mark.value());
        run(model, sequence, other, {3, 37});
        sequence.rewind(mark.value());
        CHECK(run(model, sequence, rest, {110 - at}) == whole);
      }
  }

  TEST_CASE("recycled pages full of NaN change nothing") {
    for (const char* name : kFamilies) {
      INFO(name);
      LoadedModel model = load(name);
      const auto tokens = prompt(90);
      const Truth truth = truth_of(model, tokens, {1, 89});
      const std::vector<int32_t> table(1, 0);
      const size_t stride = model.pool->layout().page_bytes();
      // Rows of layer 0 lie at the front of a page.
      const PagedRows first = std::string(name) == "gpt_oss" ? model.pool->keys(0, table.data(), 1)
                                                             : model.pool->latents(0, table.data(), 1);
      std::fill_n(static_cast<float*>(first.pages), 16 * stride / sizeof(float), NAN);
      CHECK(truth_of(model, tokens, {1, 89}).logits == truth.logits);
    }
  }

  TEST_CASE("a number of selected positions that cuts a pool is refused") {
    const auto model = load_model(DSA_SOURCE_DIR "/tests/golden/glm5_next/model-mxfp4", {.top_k = 30});
    REQUIRE_FALSE(model.is_ok());
    CHECK(model.status().message().find("top_k is 30, expected a multiple of the 4") != std::string::npos);
  }
}

}  // namespace dsa::test
