// The bundled model against goldens.json: prompts, answers, logits and selections that the PyTorch model of the training
// code computed in FP64 from the exported files.
#include <doctest/doctest.h>

#include <algorithm>

#include "dsa_sdk.h"
#include "golden/prompt_fixture.h"
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

std::shared_ptr<const ChatFormat> chat_format() {
  auto tokenizer = Tokenizer::load(kFolder);
  REQUIRE(tokenizer.is_ok());
  auto format = ChatFormat::create("kimi_k3", tokenizer.value());
  REQUIRE(format.is_ok());
  return format.value();
}

Prompt prompt_of(LoadedModel& model, const ChatFormat& format, const Json& golden) {
  auto messages = messages_from_json(golden["messages"].dump());
  REQUIRE_MESSAGE(messages.is_ok(), messages.status().message());
  auto prompt = make_prompt(model, format, messages.value(), false,
                            [](const std::string& name) { return Picture::from_file(kFolder + "/" + name); });
  REQUIRE_MESSAGE(prompt.is_ok(), prompt.status().message());
  return std::move(prompt).value();
}

std::vector<float> run(LoadedModel& model, SequenceState& sequence, const Prompt& prompt, int step = 0) {
  auto logits = run_prompt(model, sequence, prompt, step);
  REQUIRE_MESSAGE(logits.is_ok(), logits.status().message());
  return std::move(logits).value();
}

// The greedy answer, as many tokens as are expected.
std::vector<int32_t> answer(LoadedModel& model, const Prompt& prompt, size_t tokens, int step = 0) {
  SequenceState sequence(*model.pool, int(prompt.tokens.size() + tokens));
  std::vector<float> logits = run(model, sequence, prompt, step);
  std::vector<int32_t> ids;
  while (ids.size() < tokens) {
    ids.push_back(argmax(logits.data(), int(logits.size())));
    if (ids.size() < tokens) logits = run(model, sequence, {{ids.back()}, nullptr, {}});
  }
  return ids;
}

LoadedModel load(Route route) {
  auto model = load_model(kFolder, {.route = route});
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  return std::move(model).value();
}

}  // namespace

TEST_SUITE("golden/bundled") {
  TEST_CASE("the chat format gives the recorded prompts, token by token") {
    LoadedModel model = load(Route::fast);
    const auto format = chat_format();
    REQUIRE(goldens()["goldens"].size() >= 8);
    for (const Json& golden : goldens()["goldens"]) {
      INFO(golden["name"].get<std::string>());
      CHECK(prompt_of(model, *format, golden).tokens == golden["prompt_ids"].get<std::vector<int32_t>>());
    }
  }

  TEST_CASE("greedy answers are the recorded ones, on both routes") {
    for (const Route route : {Route::exact, Route::fast}) {
      LoadedModel model = load(route);
      const auto format = chat_format();
      for (const Json& golden : goldens()["goldens"]) {
        INFO(golden["name"].get<std::string>(), route == Route::exact ? ", exact" : ", fast");
        const auto expected = golden["answer_ids"].get<std::vector<int32_t>>();
        CHECK(answer(model, prompt_of(model, *format, golden), expected.size()) == expected);
      }
    }
  }

  TEST_CASE("a picture gives the same answer however steps split it") {
    LoadedModel model = load(Route::fast);
    const auto format = chat_format();
    int pictures = 0;
    for (const Json& golden : goldens()["goldens"]) {
      const Prompt prompt = prompt_of(model, *format, golden);
      if (prompt.placed.empty() || pictures == 2) continue;
      INFO(golden["name"].get<std::string>());
      ++pictures;
      const auto expected = golden["answer_ids"].get<std::vector<int32_t>>();
      for (int step = 1; step <= int(prompt.tokens.size()); ++step)
        REQUIRE(answer(model, prompt, expected.size(), step) == expected);
    }
    if (model.decoder->vision() != nullptr) CHECK(pictures == 2);
  }

  TEST_CASE(
      "IMG-10 sessions that ask about one picture encode it once, and each picture has its own answer") {
    dsa_runtime* runtime = nullptr;
    dsa_model* model = nullptr;
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    REQUIRE(dsa_model_load_path(runtime, kFolder.c_str(), nullptr, nullptr, &model) == DSA_OK);
    const auto ask = [&](const std::string& picture) {
      const std::string path = DSA_SOURCE_DIR "/samples/pictures/" + picture;
      dsa_image* image = nullptr;
      dsa_session* session = nullptr;
      dsa_prompt* prompt = nullptr;
      REQUIRE(dsa_image_from_file(runtime, path.c_str(), nullptr, &image) == DSA_OK);
      REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
      REQUIRE(dsa_prompt_create(runtime, &prompt) == DSA_OK);
      REQUIRE(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
      REQUIRE(dsa_prompt_image(prompt, image) == DSA_OK);
      REQUIRE(dsa_prompt_text(prompt, "What is this?", DSA_NTS) == DSA_OK);
      dsa_run* run = nullptr;
      REQUIRE(dsa_run_start(session, prompt, nullptr, &run) == DSA_OK);
      dsa_event e = DSA_INIT(dsa_event);
      while (dsa_run_next(run, DSA_FOREVER, &e) == DSA_OK) {
      }
      dsa_str text{};
      REQUIRE(dsa_run_get_text(run, DSA_CHANNEL_ANSWER, &text) == DSA_OK);
      std::string answer(text.ptr, text.len);
      dsa_run_release(run);
      dsa_prompt_release(prompt);
      dsa_session_release(session);
      dsa_image_release(image);
      return answer;
    };
    CHECK(ask("elephant.png") == "An elephant.");
    CHECK(ask("guitar.png") == "A guitar.");
    CHECK(ask("elephant.png") == "An elephant.");
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    REQUIRE(dsa_model_get_stats(model, &stats) == DSA_OK);
    CHECK(stats.images_encoded == 2);
    CHECK(stats.image_hits == 1);
    dsa_model_release(model);
    dsa_runtime_release(runtime);
  }

  TEST_CASE("logits and selected positions are those of the PyTorch model") {
    LoadedModel model = load(Route::exact);
    const auto format = chat_format();
    SelectionRecorder recorder;
    recorder.attach(*model.decoder);
    int with_logits = 0, with_sets = 0;
    for (const Json& golden : goldens()["goldens"]) {
      if (!golden.contains("first_logits")) continue;
      INFO(golden["name"].get<std::string>());
      const Prompt prompt = prompt_of(model, *format, golden);
      SequenceState sequence(*model.pool, int(prompt.tokens.size()));
      recorder.clear();
      const std::vector<float> logits = run(model, sequence, prompt);
      CHECK(relative_error(logits, golden["first_logits"].get<Values>()) < 1e-4);
      ++with_logits;
      if (!golden.contains("selected")) continue;
      for (const auto& [layer, positions] : golden["selected"]["layers"].items()) {
        const auto* set = recorder.find(std::stoi(layer), int(prompt.tokens.size()) - 1);
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
