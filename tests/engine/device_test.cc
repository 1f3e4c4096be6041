// The engine with the bundled model on a device whose memory the host may not touch.
#include <doctest/doctest.h>

#include <filesystem>

#include "api/handles.h"
#include "support/fake_host.h"
#include "tests/support/guarded_backend.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

const std::string kFolder = DSA_SOURCE_DIR "/samples/models/dsa-tiny";

// A loaded model, as Package::load() makes it but for its backend.
struct DeviceHost {
  DeviceHost() {
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    const auto package = Package::open(runtime->impl, kFolder);
    REQUIRE_MESSAGE(package.is_ok(), package.status().message());
    const auto checkpoint = Checkpoint::open(kFolder);
    REQUIRE(checkpoint.is_ok());
    EngineParts parts;
    parts.runtime = runtime->impl;
    auto guarded = std::make_unique<test::GuardedBackend>();
    backend = guarded.get();
    parts.backend = std::move(guarded);
    const auto config = std::make_shared<ModelConfig>(package.value()->config());
    auto loaded = load_language_model(config, checkpoint.value(), *parts.backend, {}, {});
    REQUIRE_MESSAGE(loaded.is_ok(), loaded.status().message());
    parts.model = std::move(loaded).value();
    parts.tokenizer = Tokenizer::load(kFolder).value();
    parts.format = ChatFormat::create(config->family, parts.tokenizer).value();
    parts.end_tokens = package.value()->end_tokens();
    parts.thinking = package.value()->thinking();
    parts.max_context = config->max_context;
    auto engine =
        Engine::create(std::move(parts), {.default_context = 512, .pool_sessions = 2, .pool_states = 5});
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
  dsa_run* start(dsa_session* session, const std::string& question, const char* picture = nullptr) {
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
    REQUIRE(dsa_run_start(session, prompt, nullptr, &run) == DSA_OK);
    dsa_prompt_release(prompt);
    return run;
  }
  std::string answer(dsa_session* session, const std::string& question, const char* picture = nullptr) {
    dsa_run* run = start(session, question, picture);
    const std::string text = drain(run).answer();
    CHECK(result_of(run).status == DSA_OK);
    dsa_run_release(run);
    return text;
  }

  dsa_runtime* runtime = nullptr;
  dsa_model* model = nullptr;
  test::GuardedBackend* backend = nullptr;  // the engine's
};

}  // namespace

TEST_SUITE("engine/device") {
  TEST_CASE("conversations, pictures, runs beside each other and runs that are taken back, all on a device") {
    if (!std::filesystem::exists(kFolder + "/preprocessor_config.json")) return;
    DeviceHost host;
    dsa_session* session = host.session();
    CHECK(host.answer(session, "What is the capital of France?").find("Paris") != std::string::npos);
    CHECK(host.backend->replayed > 0);
    const std::string pictures = DSA_SOURCE_DIR "/samples/pictures/";
    CHECK(host.answer(session, "What is this?", (pictures + "elephant.png").c_str()).find("elephant") !=
          std::string::npos);
    const uint32_t tokens = info_of(session).num_tokens;
    CHECK(info_of(session).device_bytes > 0);
    CHECK(info_of(session).host_bytes == 0);
    CHECK(info_of(session).tier == DSA_TIER_DEVICE);

    // Taken back: the session is as before, and says the same as if nothing had been.
    dsa_run* run = host.start(session, "Tell me something about the sea.");
    CHECK(dsa_run_cancel(run, DSA_STOP_ROLLBACK) == DSA_OK);
    drain_rest(run);
    dsa_run_release(run);
    CHECK(info_of(session).num_tokens == tokens);

    dsa_session* other = host.session();
    dsa_run* first = host.start(session, "What is the capital of Japan?");
    dsa_run* second = host.start(other, "What is the capital of Japan?");
    CHECK(drain(first).answer().find("Tokyo") != std::string::npos);
    CHECK(drain(second).answer().find("Tokyo") != std::string::npos);
    dsa_run_release(first);
    dsa_run_release(second);

    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.device_bytes == host.backend->storage().allocated_bytes());
    CHECK(stats.failed == 0);

    // Two sessions have two states each, and the fifth is for a mark: a third one has not enough to run with.
    dsa_session* third = host.session();
    dsa_run* refused = host.start(third, "Hello.");
    drain(refused);
    CHECK(result_of(refused).status == DSA_ERROR_OUT_OF_DEVICE_MEMORY);
    dsa_run_release(refused);
    dsa_session_release(other);
    CHECK_FALSE(host.answer(third, "Hello.").empty());
    dsa_session_release(third);
    dsa_session_release(session);
  }
}
