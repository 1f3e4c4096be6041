// The engine with the bundled model on a device whose memory the host may not touch.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/device_host.h"
#include "tests/support/guarded_backend.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

const std::string kFolder = DSA_SOURCE_DIR "/samples/models/dsa-tiny";

struct GuardedHost {
  explicit GuardedHost(int states, bool samples = false, bool is_late = false, bool runs_ahead = true) {
    auto guarded = std::make_unique<test::GuardedBackend>();
    backend = guarded.get();
    backend->sampling = samples;
    backend->storage().late = is_late;
    host = std::make_unique<test::DeviceHost>(kFolder, std::move(guarded),
                                              EngineOptions{.pool_states = states, .run_ahead = runs_ahead});
  }
  test::GuardedBackend* backend;  // the engine's
  std::unique_ptr<test::DeviceHost> host;
};

}  // namespace

TEST_SUITE("engine/device") {
  TEST_CASE("conversations, pictures, runs beside each other and runs that are taken back, all on a device") {
    if (!std::filesystem::exists(kFolder + "/preprocessor_config.json")) return;
    GuardedHost guarded(5);
    test::DeviceHost& host = *guarded.host;
    dsa_session* session = host.session();
    CHECK(host.answer(session, "What is the capital of France?").find("Paris") != std::string::npos);
    CHECK(guarded.backend->replayed > 0);
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
    CHECK(stats.device_bytes == guarded.backend->storage().allocated_bytes());
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

  TEST_CASE("a device that chooses tokens, and is a step ahead of its host, says what the host would have") {
    GuardedHost plain(6);  // two sessions with a mark each
    const std::vector<std::string> expected = test::conversations(*plain.host, true);
    CHECK(plain.backend->storage().marks_ahead() == 0);
    for (const bool runs_ahead : {false, true})
      for (const bool is_late : {false, true}) {
        INFO("ahead ", runs_ahead, ", late ", is_late);
        GuardedHost device(6, true, is_late, runs_ahead);
        CHECK(test::conversations(*device.host, true) == expected);
        CHECK((device.backend->storage().marks_ahead() > 0) == (runs_ahead && is_late));
        dsa_model_stats stats = DSA_INIT(dsa_model_stats);
        CHECK(dsa_model_get_stats(device.host->model, &stats) == DSA_OK);
        CHECK(stats.failed == 0);
        CHECK(stats.kv_bytes == 0);
      }
  }
}
