// The bundled model against goldens.json: prompts, answers, logits and selections that the PyTorch model of the training
// code computed in FP64 from the exported files.
#include <doctest/doctest.h>

#include <algorithm>

#include "golden/fixture.h"
#include "support/values.h"
#include "text/chat_format.h"
#include "text/chat_json.h"

namespace dsa::test {
namespace {

const std::string kFolder = DSA_SOURCE_DIR "/samples/models/dsa-tiny";

const Json& goldens() {
  static const Json& json = *new Json([] {
    auto result = read_json_file(kFolder + "/goldens.json");
    REQUIRE_MESSAGE(result.is_ok(), result.status().message());
    return std::move(result).value();
  }());
  return json;
}

// Runs the prompt and returns the logits after it.
std::vector<float> run_prompt(LoadedModel& model, SequenceState& sequence,
                              const std::vector<int32_t>& prompt) {
  std::vector<float> logits;
  for (size_t at = 0; at < prompt.size();) {
    const int count = std::min(int(prompt.size() - at), model.decoder->max_step_tokens());
    auto result = append(model, sequence, prompt.data() + at, count);
    REQUIRE_MESSAGE(result.is_ok(), result.status().message());
    logits = std::move(result).value();
    at += size_t(count);
  }
  return logits;
}

LoadedModel load(Mxfp4Route route) {
  auto model = load_model(kFolder, {.mxfp4_route = route});
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  return std::move(model).value();
}

}  // namespace

TEST_SUITE("golden/bundled") {
  TEST_CASE("the chat format gives the recorded prompts, token by token") {
    auto tokenizer = Tokenizer::load(kFolder);
    REQUIRE(tokenizer.is_ok());
    auto format = ChatFormat::create("kimi_k3", tokenizer.value());
    REQUIRE(format.is_ok());
    REQUIRE(goldens()["goldens"].size() >= 8);
    for (const Json& golden : goldens()["goldens"]) {
      INFO(golden["name"].get<std::string>());
      auto messages = messages_from_json(golden["messages"].dump());
      REQUIRE(messages.is_ok());
      auto prompt = format.value()->render(messages.value(), true, false);
      REQUIRE(prompt.is_ok());
      CHECK(prompt.value() == golden["prompt_ids"].get<std::vector<int32_t>>());
    }
  }

  TEST_CASE("greedy answers are the recorded ones, on both routes") {
    for (const Mxfp4Route route : {Mxfp4Route::exact, Mxfp4Route::fast}) {
      LoadedModel model = load(route);
      for (const Json& golden : goldens()["goldens"]) {
        INFO(golden["name"].get<std::string>(), route == Mxfp4Route::exact ? ", exact" : ", fast");
        const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
        const auto expected = golden["answer_ids"].get<std::vector<int32_t>>();
        SequenceState sequence(*model.pool, int(prompt.size() + expected.size()));
        std::vector<float> logits = run_prompt(model, sequence, prompt);
        std::vector<int32_t> answer;
        while (answer.size() < expected.size()) {
          answer.push_back(argmax(logits.data(), int(logits.size())));
          if (answer.size() < expected.size()) logits = run_prompt(model, sequence, {answer.back()});
        }
        CHECK(answer == expected);
      }
    }
  }

  TEST_CASE("logits and selected positions are those of the PyTorch model") {
    LoadedModel model = load(Mxfp4Route::exact);
    SelectionRecorder recorder;
    recorder.attach(*model.decoder);
    int with_logits = 0, with_sets = 0;
    for (const Json& golden : goldens()["goldens"]) {
      if (!golden.contains("first_logits")) continue;
      INFO(golden["name"].get<std::string>());
      const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
      SequenceState sequence(*model.pool, int(prompt.size()));
      recorder.clear();
      const std::vector<float> logits = run_prompt(model, sequence, prompt);
      CHECK(relative_error(logits, golden["first_logits"].get<Values>()) < 1e-4);
      ++with_logits;
      if (!golden.contains("selected")) continue;
      for (const auto& [layer, positions] : golden["selected"]["layers"].items()) {
        const auto* set = recorder.find(std::stoi(layer), int(prompt.size()) - 1);
        REQUIRE(set != nullptr);
        CHECK(*set == positions.get<std::vector<int32_t>>());
        ++with_sets;
      }
    }
    CHECK(with_logits >= 2);
    CHECK(with_sets == 3);
  }
}

}  // namespace dsa::test
