// support/loaded_model.h: a model folder on any backend, run step by step.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/json.h"
#include "model/decoder.h"
#include "tests/support/values.h"

namespace dsa::test {

struct ModelFiles {
  std::shared_ptr<const ModelConfig> config;
  std::shared_ptr<const Checkpoint> checkpoint;
};

inline ModelFiles open_model(const std::string& folder) {
  const auto json = read_json_file(folder + "/config.json", {.python_numbers = true});
  REQUIRE_MESSAGE(json.is_ok(), json.status().message());
  auto config = parse_model_config(json.value(), folder + "/config.json", folder);
  REQUIRE_MESSAGE(config.is_ok(), config.status().message());
  auto checkpoint = Checkpoint::open(folder);
  REQUIRE_MESSAGE(checkpoint.is_ok(), checkpoint.status().message());
  return {config.value(), checkpoint.value()};
}

// With the logits of every step that wants them. The backend lives longer.
struct LoadedModel {
  LoadedModel(const ModelFiles& files, Backend& backend, const ModelOptions& options = {}) {
    auto loaded = load_decoder(files.config, files.checkpoint, backend, options, {});
    REQUIRE_MESSAGE(loaded.is_ok(), loaded.status().message());
    decoder = std::move(loaded).value();
    pool = PagePool::create(decoder->state_layout(), 64, 0, backend.storage()).value();
  }

  // One step in which each sequence appends its tokens; the logits of all, one after the other.
  Values step(const std::vector<SequenceState*>& states, const std::vector<std::vector<int32_t>>& tokens) {
    StepPlan plan;
    for (size_t i = 0; i < states.size(); ++i)
      plan.sequences.push_back({states[i], tokens[i].data(), int(tokens[i].size()), true});
    auto pages = pool->reserve(plan);
    REQUIRE_MESSAGE(pages.is_ok(), pages.status().message());
    const auto logits = decoder->run(plan, *pool);
    REQUIRE_MESSAGE(logits.is_ok(), logits.status().message());
    pages.value().commit();
    return Values(logits.value().f32(), logits.value().f32() + logits.value().count());
  }

  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<PagePool> pool;
};

inline std::vector<int32_t> random_tokens(Random& random, int n, int vocab) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(int32_t(random.integer(0, vocab - 1)));
  return tokens;
}

// Folders of tests/golden with every kind of block and of weights.
inline const char* const kModelFolders[] = {
    "kimi_k31/model-mxfp4",     "kimi_k3_vl/model-mxfp4", "kimi_linear/model", "deepseek_v32/model-mxfp4",
    "glm5_next_vl/model-mxfp4", "gpt_oss/model-mxfp4",    "gpt_oss/model"};

// Steps of one token across pages and powers of two of them, across the context at which a selection begins, for one
// sequence and for two of different length, of which one goes back to a mark on the way: both models must give the same
// bits.
inline void check_decode_steps_are_equal(LoadedModel& expected, LoadedModel& found) {
  Random random(7);
  const int vocab = expected.decoder->vocab_size();
  const std::vector<int32_t> first = random_tokens(random, 61, vocab),
                             second = random_tokens(random, 5, vocab),
                             tokens = random_tokens(random, 240, vocab);
  const auto logits_of = [&](LoadedModel& model) {
    std::vector<Values> logits;
    SequenceState a(*model.pool, 256), b(*model.pool, 256);
    logits.push_back(model.step({&a}, {first}));
    for (int i = 0; i < 120; ++i) logits.push_back(model.step({&a}, {{tokens[size_t(i)]}}));
    logits.push_back(model.step({&b}, {second}));
    Mark mark;
    for (int i = 120; i < 140; ++i) {
      if (i == 125) mark = b.mark().value();
      if (i == 133) b.rewind(mark);
      logits.push_back(model.step({&a, &b}, {{tokens[size_t(i)]}, {tokens[size_t(i + 100)]}}));
    }
    return logits;
  };
  const std::vector<Values> all_expected = logits_of(expected), all_found = logits_of(found);
  REQUIRE(all_found.size() == all_expected.size());
  for (size_t i = 0; i < all_expected.size(); ++i) {
    INFO("step ", i);
    REQUIRE(same_bits(all_found[i], all_expected[i]));
  }
  CHECK(found.decoder->expert_counts().rows == expected.decoder->expert_counts().rows);
  CHECK(found.decoder->expert_counts().fp8_rows == expected.decoder->expert_counts().fp8_rows);
}

// Steps of four sequences that choose their tokens, each launched before the one in front of it was read: the tokens are
// those that the host chooses from the logits of steps one after the other.
inline void check_chosen_tokens(LoadedModel& model, int steps) {
  const std::vector<SampleRow> kinds = {{},
                                        {.temperature = 0.8f},
                                        {.temperature = 1, .top_p = 0.9f},
                                        {.temperature = 0.7f, .top_p = 0.95f, .min_p = 0.05f, .top_k = 30}};
  const int n = int(kinds.size()), vocab = model.decoder->vocab_size();
  const auto asked_of = [&](int step) {
    std::vector<SampleRow> asked = kinds;
    for (int i = 0; i < n; ++i) asked[size_t(i)].draw = 0x9e3779b97f4a7c15u * uint64_t(1 + step * n + i);
    return asked;
  };
  Random random(17);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<SequenceState*> host, ahead;
  for (int i = 0; i < n; ++i) {
    prompts.push_back(random_tokens(random, 20 + 13 * i, vocab));
    for (std::vector<SequenceState*>* side : {&host, &ahead}) {
      states.push_back(std::make_unique<SequenceState>(*model.pool, 192));
      side->push_back(states.back().get());
    }
  }

  std::vector<std::vector<int32_t>> expected, tokens = prompts;
  for (int step = 0; step < steps; ++step) {
    const Values logits = model.step(host, tokens);
    const std::vector<SampleRow> asked = asked_of(step);
    std::vector<SampledToken> sampled(size_t(n), SampledToken{-1, -1, 0});
    std::vector<int32_t> chosen(size_t(n), -1);
    SerialQueue queue;
    cpu_kernels().sample({logits.data(), asked.data(), sampled.data(), chosen.data(), vocab, n, vocab,
                          sample_flags(asked, vocab)},
                         queue);
    expected.push_back(chosen);
    for (int i = 0; i < n; ++i) tokens[size_t(i)] = {chosen[size_t(i)]};
  }

  const auto launch = [&](int step) {
    StepPlan plan;
    for (size_t i = 0; i < size_t(n); ++i)
      plan.sequences.push_back(
          {ahead[i], step == 0 ? prompts[i].data() : nullptr, step == 0 ? int(prompts[i].size()) : 1, true});
    auto pages = model.pool->reserve(plan);
    REQUIRE_MESSAGE(pages.is_ok(), pages.status().message());
    REQUIRE(model.decoder->launch(plan, *model.pool, asked_of(step)).is_ok());
    pages.value().commit();
  };
  launch(0);
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) launch(step + 1);
    const auto chosen = model.decoder->collect();
    REQUIRE_MESSAGE(chosen.is_ok(), chosen.status().message());
    for (size_t i = 0; i < size_t(n); ++i) {
      INFO("step ", step, " row ", i);
      REQUIRE(chosen.value()[i].token == expected[size_t(step)][i]);
    }
  }
}

}  // namespace dsa::test
