// support/fake_host.h: a runtime and a model made of fake_model.h, used through the C interface.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "api/handles.h"
#include "dsa_sdk.h"
#include "support/fake_model.h"

namespace dsa::fake {

struct Host {
  explicit Host(EngineOptions options = {}, std::function<void(Control&)> setup = {}) {
    if (setup) setup(*control);
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    auto engine = Engine::create(parts(control, runtime->impl), options);
    REQUIRE(engine.is_ok());
    model = new dsa_model(std::move(engine).value());
  }
  ~Host() {
    control->open();
    dsa_model_release(model);
    dsa_runtime_release(runtime);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  dsa_session* session(uint32_t context = 0, int32_t overflow = DSA_OVERFLOW_ERROR) {
    dsa_session_options options = DSA_INIT(dsa_session_options);
    options.context_tokens = context;
    options.overflow = overflow;
    dsa_session* session = nullptr;
    REQUIRE(dsa_session_create(model, &options, &session) == DSA_OK);
    return session;
  }
  dsa_prompt* user(const std::string& text) {
    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_prompt_create(runtime, &prompt) == DSA_OK);
    REQUIRE(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
    REQUIRE(dsa_prompt_text(prompt, text.data(), text.size()) == DSA_OK);
    return prompt;
  }
  dsa_run* start(dsa_session* session, const std::string& text, const dsa_run_options* options = nullptr) {
    dsa_prompt* prompt = user(text);
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(session, prompt, options, &run) == DSA_OK);
    dsa_prompt_release(prompt);
    return run;
  }

  // A gray picture; the shade is its content.
  dsa_image* image(uint32_t width, uint32_t height, uint8_t shade) {
    const std::vector<uint8_t> gray(size_t(width) * height, shade);
    dsa_pixels pixels = DSA_INIT(dsa_pixels);
    pixels.data = gray.data();
    pixels.width = width;
    pixels.height = height;
    pixels.format = DSA_PIXELS_GRAY8;
    dsa_image* image = nullptr;
    REQUIRE(dsa_image_from_pixels(runtime, &pixels, nullptr, &image) == DSA_OK);
    return image;
  }
  dsa_model_stats stats() {
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(model, &stats) == DSA_OK);
    return stats;
  }

  std::shared_ptr<Control> control = std::make_shared<Control>();
  dsa_runtime* runtime = nullptr;
  dsa_model* model = nullptr;
};

// What came out of a run.
struct Heard {
  std::string text[3];
  std::vector<int32_t> types;
  std::vector<std::pair<std::string, std::string>> calls;  // name and arguments, as the events say them
  bool is_call_open = false;
  int dones = 0, finish = 0;
  uint32_t num_tokens = 0;
  dsa_status last = 0;

  void take(const dsa_event& e) {
    types.push_back(e.type);
    num_tokens += e.num_tokens;
    if (e.type == DSA_EVENT_TEXT) {
      CHECK(e.text.ptr[e.text.len] == 0);
      CHECK(e.text.len > 0);
      CHECK(find_invalid_utf8({e.text.ptr, e.text.len}) == std::string::npos);
      text[e.channel].append(e.text.ptr, e.text.len);
    }
    if (e.type == DSA_EVENT_TOOL_BEGIN) {
      CHECK(e.index == calls.size());
      calls.push_back({std::string(e.text.ptr, e.text.len), ""});
      CHECK(!is_call_open);
      is_call_open = true;
    }
    if (e.type == DSA_EVENT_TOOL_ARGUMENTS || e.type == DSA_EVENT_TOOL_END) {
      CHECK(is_call_open);
      REQUIRE(e.index + 1 == calls.size());
      CHECK(e.channel == DSA_CHANNEL_TOOL);
      calls.back().second.append(e.text.ptr, e.text.len);
      is_call_open = e.type == DSA_EVENT_TOOL_ARGUMENTS;
    }
    if (e.type == DSA_EVENT_DONE) CHECK(!is_call_open);
    if (e.type == DSA_EVENT_DONE) ++dones, finish = e.finish;
  }
  const std::string& answer() const { return text[DSA_CHANNEL_ANSWER]; }
};

// Reads a run to its end and checks what holds for every run.
inline Heard drain(dsa_run* run) {
  Heard heard;
  dsa_event e = DSA_INIT(dsa_event);
  while ((heard.last = dsa_run_next(run, 20000, &e)) == DSA_OK) heard.take(e);
  CHECK(heard.last == DSA_END);
  CHECK(heard.dones == 1);
  REQUIRE(!heard.types.empty());
  CHECK(heard.types.front() == DSA_EVENT_START);
  CHECK(heard.types.back() == DSA_EVENT_DONE);
  CHECK(dsa_run_next(run, 0, &e) == DSA_END);
  for (int32_t channel = 0; channel < 3; ++channel) {
    dsa_str all{};
    CHECK(dsa_run_get_text(run, channel, &all) == DSA_OK);
    CHECK(std::string(all.ptr, all.len) == heard.text[channel]);
  }
  return heard;
}

// Reads what is left; returns the number of DONEs in it.
inline int drain_rest(dsa_run* run) {
  dsa_event e = DSA_INIT(dsa_event);
  Heard heard;
  while (dsa_run_next(run, 20000, &e) == DSA_OK) heard.take(e);
  return heard.dones;
}

inline dsa_result result_of(dsa_run* run) {
  dsa_result result = DSA_INIT(dsa_result);
  CHECK(dsa_run_get_result(run, &result) == DSA_OK);
  return result;
}

inline dsa_session_info info_of(dsa_session* session) {
  dsa_session_info info = DSA_INIT(dsa_session_info);
  CHECK(dsa_session_get_info(session, &info) == DSA_OK);
  return info;
}

inline dsa_error last_error() {
  dsa_error error = DSA_INIT(dsa_error);
  CHECK(dsa_last_error(&error) == DSA_OK);
  return error;
}

// One question, one answer.
inline Heard ask(Host& host, dsa_session* session, const std::string& text,
                 const dsa_run_options* options = nullptr) {
  dsa_run* run = host.start(session, text, options);
  Heard heard = drain(run);
  dsa_run_release(run);
  return heard;
}

}  // namespace dsa::fake
