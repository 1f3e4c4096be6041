// support/device_host.h: the engine with the bundled model on a backend of the test, and conversations with it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "support/fake_host.h"

namespace dsa::test {

// A loaded model, as Package::load() makes it but for its backend.
struct DeviceHost {
  DeviceHost(const std::string& folder, std::unique_ptr<Backend> backend, EngineOptions options = {}) {
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    const auto package = Package::open(runtime->impl, folder);
    REQUIRE_MESSAGE(package.is_ok(), package.status().message());
    const auto checkpoint = Checkpoint::open(folder);
    REQUIRE(checkpoint.is_ok());
    EngineParts parts;
    parts.runtime = runtime->impl;
    parts.backend = std::move(backend);
    const auto config = std::make_shared<ModelConfig>(package.value()->config());
    auto loaded = load_language_model(config, checkpoint.value(), *parts.backend, {}, {});
    REQUIRE_MESSAGE(loaded.is_ok(), loaded.status().message());
    parts.model = std::move(loaded).value();
    parts.tokenizer = Tokenizer::load(folder).value();
    parts.format = ChatFormat::create(config->family, parts.tokenizer).value();
    parts.end_tokens = package.value()->end_tokens();
    parts.thinking = package.value()->thinking();
    parts.max_context = config->max_context;
    options.default_context = 1024;
    options.pool_sessions = 2;
    auto engine = Engine::create(std::move(parts), options);
    REQUIRE_MESSAGE(engine.is_ok(), engine.status().message());
    model = new dsa_model(std::move(engine).value());
  }
  ~DeviceHost() {
    CHECK(dsa_model_close(model, 20000) == DSA_OK);
    dsa_model_release(model);
    dsa_runtime_release(runtime);
  }

  dsa_session* session() {
    dsa_session* session = nullptr;
    REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
    return session;
  }
  dsa_run* start(dsa_session* session, const std::string& question, const char* picture = nullptr,
                 const dsa_run_options* options = nullptr) {
    dsa_prompt* prompt = nullptr;
    dsa_image* image = nullptr;
    dsa_run* run = nullptr;
    REQUIRE(dsa_prompt_create(runtime, &prompt) == DSA_OK);
    REQUIRE(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
    if (picture != nullptr) {
      REQUIRE(dsa_image_from_file(runtime, picture, nullptr, &image) == DSA_OK);
      REQUIRE(dsa_prompt_image(prompt, image) == DSA_OK);
      dsa_image_release(image);
    }
    REQUIRE(dsa_prompt_text(prompt, question.data(), question.size()) == DSA_OK);
    REQUIRE(dsa_run_start(session, prompt, options, &run) == DSA_OK);
    dsa_prompt_release(prompt);
    return run;
  }
  std::string answer(dsa_session* session, const std::string& question, const char* picture = nullptr,
                     const dsa_run_options* options = nullptr) {
    dsa_run* run = start(session, question, picture, options);
    const std::string text = fake::drain(run).answer();
    CHECK(fake::result_of(run).status == DSA_OK);
    dsa_run_release(run);
    return text;
  }

  dsa_runtime* runtime = nullptr;
  dsa_model* model = nullptr;
};

// What a host hears in a few conversations: greedy and seeded ones, answers that are cut off by their length and by a text,
// runs beside each other, runs that are taken back, and logits that the host changes.
inline std::vector<std::string> conversations(DeviceHost& host, bool beside_each_other) {
  using namespace fake;
  std::vector<std::string> heard;
  const auto note = [&](dsa_session* session, std::string text) {
    heard.push_back(concat(text, " | ", info_of(session).num_tokens));
  };
  dsa_run_options options = DSA_INIT(dsa_run_options);
  dsa_sampling sampling = DSA_SAMPLING_INIT;
  sampling.temperature = 0.9f;
  options.sampling = &sampling;
  options.seed = 11;
  dsa_session *session = host.session(), *other = host.session();
  note(session, host.answer(session, "What is the capital of France?"));
  for (const float top_p : {1.f, 0.9f}) {
    sampling.top_p = top_p;
    note(session, host.answer(session, "Tell me something about the sea.", nullptr, &options));
  }
  sampling.top_k = 40;
  sampling.min_p = 0.02f;
  for (options.max_tokens = 1; options.max_tokens < 6; ++options.max_tokens)
    note(session, host.answer(session, "And the mountains?", nullptr, &options));
  options.max_tokens = 0;
  const dsa_str stop = {"a", 1};
  options.stops = &stop;
  options.num_stops = 1;
  note(session, host.answer(session, "Tell me about birds.", nullptr, &options));
  options.num_stops = 0;
  sampling.repeat_penalty = 1.3f;  // only the host does that
  note(other, host.answer(other, "Tell me about trees.", nullptr, &options));
  sampling.repeat_penalty = 1;

  if (beside_each_other) {  // one ends before the other, and the other goes on
    options.max_tokens = 3;
    dsa_run* brief = host.start(session, "What is this about?", nullptr, &options);
    options.max_tokens = 30;
    dsa_run* longer = host.start(other, "And this?", nullptr, &options);
    const std::string first = drain(brief).answer(), second = drain(longer).answer();
    note(session, first);
    note(other, second);
    dsa_run_release(brief);
    dsa_run_release(longer);
  }

  // Taken back before its first words, and after them, as if nothing had been.
  for (const int events : {1, 2, 3}) {
    dsa_run* taken_back = host.start(session, "What is the capital of France?");
    dsa_event e = DSA_INIT(dsa_event);
    for (int i = 0; i < events; ++i) (void)dsa_run_next(taken_back, 20000, &e);
    CHECK(dsa_run_cancel(taken_back, DSA_STOP_ROLLBACK) == DSA_OK);
    drain_rest(taken_back);
    CHECK(result_of(taken_back).finish == DSA_FINISH_CANCELLED);
    dsa_run_release(taken_back);
  }
  note(session, host.answer(session, "What is the capital of Japan?"));
  for (dsa_session* s : {session, other}) dsa_session_release(s);
  return heard;
}

}  // namespace dsa::test
