// One truth, many routes: the same tokens give the same logits and selections however they arrive.
//
// On the exact route: the fast one rounds activations to 9 bits, and a difference in the last bit of an f32 can
// move a value to the next step.
#include <doctest/doctest.h>

#include <algorithm>

#include "golden/fixture.h"
#include "support/values.h"

namespace dsa::test {
namespace {

constexpr int kPrompt = 300;  // the selection size of the fixture is 32
constexpr double kTolerance = 1e-5;

std::string fixture(const char* name) {
  return std::string(DSA_SOURCE_DIR "/tests/golden/") + name + "/model-mxfp4";
}

LoadedModel load(const char* name = "kimi_k31", ModelOptions options = {}) {
  options.route = Route::exact;
  auto model = load_model(fixture(name), options, 4096);
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  return std::move(model).value();
}

std::vector<int32_t> prompt(int n, uint64_t seed = 7, int vocab = 368) {
  Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = int32_t(random.integer(0, vocab - 1));
  return tokens;
}

// Appends tokens in pieces of the given sizes; the last piece's logits.
Values run(LoadedModel& model, SequenceState& sequence, const std::vector<int32_t>& tokens,
           const std::vector<int>& sizes) {
  Values logits;
  size_t at = 0;
  for (int size : sizes)
    for (int done = 0; done < size;) {
      const int count = std::min(size - done, model.decoder->max_step_tokens());
      auto result = append(model, sequence, tokens.data() + at, count);
      REQUIRE_MESSAGE(result.is_ok(), result.status().message());
      logits = std::move(result).value();
      done += count;
      at += size_t(count);
    }
  return logits;
}

using Sets = std::map<std::pair<int, int>, std::vector<int32_t>>;

// Logits and selections of a fresh sequence.
struct Truth {
  Values logits;
  Sets sets;
};

Truth truth_of(LoadedModel& model, const std::vector<int32_t>& tokens, const std::vector<int>& sizes) {
  SelectionRecorder recorder;
  recorder.attach(*model.decoder);
  SequenceState sequence(*model.pool, int(tokens.size()) + 64);
  Truth truth;
  truth.logits = run(model, sequence, tokens, sizes);
  truth.sets = recorder.sets();
  model.decoder->observe_selection({});
  return truth;
}

// A prompt in chunks of any size gives what it gives whole, which is returned.
Truth check_chunks(LoadedModel& model) {
  const auto tokens = prompt(kPrompt, 7, std::min(model.config->vocab, 368));
  const Truth whole = truth_of(model, tokens, {kPrompt});
  for (int size : {1, 7, 64}) {
    INFO("in chunks of ", size);
    std::vector<int> sizes(size_t(kPrompt / size), size);
    if (kPrompt % size) sizes.push_back(kPrompt % size);
    const Truth parts = truth_of(model, tokens, sizes);
    CHECK(relative_error(parts.logits, whole.logits) < kTolerance);
    CHECK(parts.sets == whole.sets);
  }
  return whole;
}

}  // namespace

TEST_SUITE("model/decoder") {
  TEST_CASE("IDX-05 IDX-06 one append equals two at every split point") {
    LoadedModel model = load();
    const auto tokens = prompt(kPrompt);
    const Truth whole = truth_of(model, tokens, {kPrompt});
    for (int split = 1; split < kPrompt; ++split) {
      INFO("split at ", split);
      const Truth parts = truth_of(model, tokens, {split, kPrompt - split});
      REQUIRE(relative_error(parts.logits, whole.logits) < kTolerance);
      REQUIRE(parts.sets == whole.sets);
    }
  }

  TEST_CASE("LIN-05 token by token, in chunks of 1, 7, 64 and whole") {
    for (const char* name : {"kimi_k3", "kimi_k31", "kimi_linear", "deepseek_v32", "glm_moe_dsa"}) {
      INFO(name);
      LoadedModel model = load(name);
      check_chunks(model);
    }
  }

  TEST_CASE("IDX-06 a cache of fp8: token by token, in chunks of 7 and 64 and whole") {
    for (const char* name : {"deepseek_v32", "glm_moe_dsa"}) {
      INFO(name);
      LoadedModel model = load(name, {.cache_format = CacheFormat::fp8}), exact = load(name);
      const Truth rounded = check_chunks(model), kept = check_chunks(exact);
      CHECK(relative_error(rounded.logits, kept.logits) > kTolerance);
    }
  }

  TEST_CASE("IDX-07 batched with other sessions, each equals its run alone") {
    for (const char* name : {"kimi_k31", "kimi_linear", "deepseek_v32", "glm_moe_dsa"}) {
      INFO(name);
      LoadedModel model = load(name);
      const int cached[] = {0, 130, 10, 40, 1}, fresh[] = {5, 52, 27, 1, 1};
      std::vector<std::vector<int32_t>> tokens;
      std::vector<Values> alone;
      std::vector<Sets> alone_sets;
      for (int i = 0; i < 5; ++i) {
        tokens.push_back(prompt(cached[i] + fresh[i], 100 + uint64_t(i), std::min(model.config->vocab, 368)));
        std::vector<int> sizes;
        if (cached[i]) sizes.push_back(cached[i]);
        sizes.push_back(fresh[i]);
        const Truth truth = truth_of(model, tokens.back(), sizes);
        alone.push_back(truth.logits);
        alone_sets.push_back(truth.sets);
      }

      std::vector<std::unique_ptr<SequenceState>> sequences;
      StepPlan plan;
      for (int i = 0; i < 5; ++i) {
        sequences.push_back(std::make_unique<SequenceState>(*model.pool, 400));
        if (cached[i]) run(model, *sequences.back(), tokens[size_t(i)], {cached[i]});
        plan.sequences.push_back(
            {sequences.back().get(), tokens[size_t(i)].data() + cached[i], fresh[i], true});
      }
      Sets sets[5];
      model.decoder->observe_selection([&](int layer, const Batch& batch, const Tensor& selected) {
        for (int t = 0; t < batch.tokens; ++t) {
          if (selected.is_null()) continue;
          const int32_t* row = selected.i32() + t * selected.stride[0];
          std::vector<int32_t>& set = sets[batch.sequence_of[size_t(t)]][{layer, batch.positions[size_t(t)]}];
          std::copy_if(row, row + selected.dim[1], std::back_inserter(set), [](int32_t p) { return p >= 0; });
        }
      });
      auto pages = model.pool->reserve(plan);
      REQUIRE(pages.is_ok());
      auto logits = model.decoder->run(plan, *model.pool);
      REQUIRE(logits.is_ok());
      pages.value().commit();
      for (int i = 0; i < 5; ++i) {
        INFO("session ", i);
        const float* row = logits.value().f32() + i * logits.value().stride[0];
        CHECK(relative_error(Values(row, row + logits.value().dim[1]), alone[size_t(i)]) < kTolerance);
        CHECK(sets[i].empty() == (model.config->indexer.top_k == 0));
        for (const auto& [key, set] : sets[i]) CHECK(set == alone_sets[size_t(i)][key]);
      }
    }
  }

  TEST_CASE("an uncommitted step leaves nothing behind") {
    LoadedModel model = load();
    const auto tokens = prompt(kPrompt);
    const Truth whole = truth_of(model, tokens, {kPrompt});
    SequenceState sequence(*model.pool, 400);
    run(model, sequence, tokens, {150});
    const auto other = prompt(90, 99);
    const int64_t free_before = model.pool->free_pages();
    {
      StepPlan plan;
      plan.sequences.push_back({&sequence, other.data(), 90, true});
      auto pages = model.pool->reserve(plan);
      REQUIRE(pages.is_ok());
      REQUIRE(model.decoder->run(plan, *model.pool).is_ok());
    }
    CHECK(sequence.length() == 150);
    CHECK(model.pool->free_pages() == free_before);
    const std::vector<int32_t> rest(tokens.begin() + 150, tokens.end());
    CHECK(relative_error(run(model, sequence, rest, {150}), whole.logits) < kTolerance);
  }

  TEST_CASE("LIN-08 LIN-10 LIN-16 a rewind returns exactly to its mark, ten times") {
    LoadedModel model = load();
    const auto tokens = prompt(kPrompt), other = prompt(120, 5);
    SequenceState sequence(*model.pool, 600);
    run(model, sequence, tokens, {150});
    auto mark = sequence.mark();
    REQUIRE(mark.is_ok());
    const std::vector<int32_t> rest(tokens.begin() + 150, tokens.end());
    Values first;
    for (int round = 0; round < 10; ++round) {
      const Values logits = run(model, sequence, rest, {150});
      if (round == 0) first = logits;
      CHECK(logits == first);
      sequence.rewind(mark.value());
      run(model, sequence, other, {120});
      sequence.rewind(mark.value());
      CHECK(sequence.length() == 150);
    }
  }

  TEST_CASE("LIN-06 LIN-18 IDX-11 recycled pages full of NaN and a one-token first chunk change nothing") {
    LoadedModel model = load();
    const auto tokens = prompt(90);
    const Truth truth = truth_of(model, tokens, {1, 89});
    {  // poison every page, then free it
      std::vector<int32_t> table(size_t(model.pool->num_pages()));
      for (size_t i = 0; i < table.size(); ++i) table[i] = int32_t(i);
      const PagedRows rows = model.pool->latents(0, table.data(), int(table.size()));
      for (int page = 0; page < 64; ++page)
        std::fill_n(static_cast<float*>(rows.pages) + size_t(page) * rows.page_stride / sizeof(float),
                    rows.page_stride / sizeof(float), NAN);
    }
    CHECK(truth_of(model, tokens, {1, 89}).logits == truth.logits);
  }

  TEST_CASE("LIN-07 prompts of one to four tokens, then eight steps") {
    LoadedModel model = load();
    const auto tokens = prompt(12);
    const Truth whole = truth_of(model, tokens, {12});
    for (int first = 1; first <= 4; ++first) {
      std::vector<int> sizes{first};
      for (int i = first; i < 12; ++i) sizes.push_back(1);
      CHECK(relative_error(truth_of(model, tokens, sizes).logits, whole.logits) < kTolerance);
    }
  }

  TEST_CASE(
      "IDX-14 up to the selection size every visible position is selected, beyond it exactly that many") {
    LoadedModel model = load();
    const Truth truth = truth_of(model, prompt(80), {80});
    for (const auto& [key, set] : truth.sets) CHECK(int(set.size()) == std::min(key.second + 1, 32));
  }

  TEST_CASE("the selection matters: a random one changes the logits") {
    LoadedModel learned = load(), random = load("kimi_k31", {.selection = Selection::random});
    const auto tokens = prompt(kPrompt);
    const double changed = relative_error(truth_of(random, tokens, {kPrompt}).logits,
                                          truth_of(learned, tokens, {kPrompt}).logits);
    CHECK(changed > 0.01);
  }

  TEST_CASE("SES-02 a step that is too large is refused and changes nothing") {
    LoadedModel model = load("kimi_k31", {.max_step_tokens = 16});
    SequenceState sequence(*model.pool, 100);
    const auto tokens = prompt(17);
    const auto result = append(model, sequence, tokens.data(), 17);
    CHECK(result.status().code() == Code::limit);
    CHECK(sequence.length() == 0);
    CHECK(model.pool->free_pages() == model.pool->num_pages());
  }

  TEST_CASE("SES-12 a full context names what was needed and what there is") {
    LoadedModel model = load();
    SequenceState sequence(*model.pool, 20);
    const auto tokens = prompt(21);
    CHECK(append(model, sequence, tokens.data(), 20).is_ok());
    const auto result = append(model, sequence, tokens.data(), 1);
    CHECK(result.status().code() == Code::context_full);
    CHECK(result.status().info().needed == 21);
    CHECK(result.status().info().available == 20);
    CHECK(sequence.length() == 20);
  }

  TEST_CASE("a token outside the vocabulary is refused") {
    LoadedModel model = load();
    SequenceState sequence(*model.pool, 20);
    for (int32_t token : {-1, 384})
      CHECK(append(model, sequence, &token, 1).status().code() == Code::argument);
    CHECK(sequence.length() == 0);
  }
}

}  // namespace dsa::test
