// Memory that runs out at every point, exceptions in every entry point.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0}, failing{-1};

void* allocate(size_t size) {
  if (counting.load(std::memory_order_relaxed) && !uncounted && allocations++ == failing) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}

// Fails the n-th allocation of the process while it lives.
struct FailNth {
  explicit FailNth(int64_t n) {
    allocations = 0;
    failing = n;
    counting = true;
  }
  ~FailNth() { counting = false; }
  bool happened() const { return allocations > failing; }
};

}  // namespace

// Out of line, or GCC sees malloc and free and finds that they do not match new and delete.
#define DSA_APART __attribute__((noinline))
DSA_APART void* operator new(size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
DSA_APART void* operator new[](size_t size) { return operator new(size); }
DSA_APART void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
DSA_APART void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
DSA_APART void operator delete(void* memory) noexcept { std::free(memory); }
DSA_APART void operator delete[](void* memory) noexcept { std::free(memory); }
DSA_APART void operator delete(void* memory, size_t) noexcept { std::free(memory); }
DSA_APART void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
DSA_APART void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
DSA_APART void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

TEST_SUITE("engine/failure") {
  TEST_CASE(
      "the n-th allocation of a pulled run fails, for each n: a typed error, and the session is as before") {
    Host host;
    std::string expected;
    {
      dsa_session* untouched = host.session();
      expected = ask(host, untouched, "after").answer();
      dsa_session_release(untouched);
    }
    int failures = 0;
    for (int64_t n = 0; n < 2000; ++n) {
      dsa_session* session = host.session();
      dsa_prompt* prompt = host.user("the question");
      dsa_run* run = nullptr;
      dsa_event e = DSA_INIT(dsa_event);
      dsa_result result = DSA_INIT(dsa_result);
      int dones = 0;
      bool happened;
      dsa_status status, next = DSA_END;
      {
        FailNth fail(n);
        status = dsa_run_start(session, prompt, nullptr, &run);
        if (status == DSA_OK) {
          while ((next = dsa_run_next(run, 20000, &e)) == DSA_OK) dones += e.type == DSA_EVENT_DONE;
          dsa_run_get_result(run, &result);
        }
        happened = fail.happened();
      }
      if (status == DSA_OK) {
        CHECK(next == DSA_END);
        CHECK(dones == 1);
        CHECK((result.status == DSA_OK || result.status == DSA_ERROR_OUT_OF_MEMORY));
      } else {
        CHECK(status == DSA_ERROR_OUT_OF_MEMORY);
        CHECK(last_error().code == DSA_ERROR_OUT_OF_MEMORY);
        CHECK(run == nullptr);
      }
      const bool failed = status != DSA_OK || result.status != DSA_OK;
      failures += failed;
      if (failed) {
        CHECK(info_of(session).num_tokens == 0);
        CHECK(info_of(session).state == DSA_SESSION_IDLE);
        CHECK(ask(host, session, "after").answer() == expected);
      }
      dsa_run_release(run);
      dsa_prompt_release(prompt);
      dsa_session_release(session);
      if (!happened) break;
      CHECK(n < 1999);
    }
    CHECK(failures > 8);
  }

  TEST_CASE("the same for building, asking and the text calls") {
    Host host;
    const auto scenario = [&](dsa_status* worst) {
      const auto note = [&](dsa_status status) {
        if (status < 0) *worst = status;
        return status;
      };
      dsa_session* session = nullptr;
      dsa_prompt* prompt = nullptr;
      dsa_token tokens[32];
      size_t count = 0;
      char text[64];
      dsa_prompt_cost cost = DSA_INIT(dsa_prompt_cost);
      if (note(dsa_session_create(host.model, nullptr, &session)) == DSA_OK) {
        note(dsa_session_ask(session, "a question", DSA_NTS, nullptr, nullptr));
        if (note(dsa_prompt_create(host.runtime, &prompt)) == DSA_OK) {
          const char* chat =
              "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a text of some "
              "length\"}]}]";
          note(dsa_prompt_add_json(prompt, chat, DSA_NTS));
          if (note(dsa_prompt_message(prompt, DSA_ROLE_USER)) == DSA_OK)
            note(dsa_prompt_text(prompt, "a text that does not fit into a small string", DSA_NTS));
          note(dsa_prompt_measure(prompt, host.model, session, DSA_FEED_APPEND, &cost));
          note(dsa_prompt_render(prompt, host.model, text, sizeof(text), &count));
          note(dsa_session_prefill(session, prompt, nullptr, nullptr, nullptr));
        }
        note(dsa_model_tokenize(host.model, "some text", DSA_NTS, 0, tokens, 32, &count));
        note(dsa_model_detokenize(host.model, tokens, 9, 0, text, sizeof(text), &count));
      }
      dsa_prompt_release(prompt);
      dsa_session_release(session);
    };
    bool happened = true;
    int64_t n = 0;
    for (; happened && n < 3000; ++n) {
      dsa_status worst = DSA_OK;
      {
        FailNth fail(n);
        scenario(&worst);
        happened = fail.happened();
      }
      // A prompt that could not be built is empty.
      CHECK((worst == DSA_OK || worst == DSA_ERROR_OUT_OF_MEMORY || worst == DSA_ERROR_ARGUMENT));
    }
    CHECK(n < 3000);
    CHECK(n > 30);
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    do CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    while (stats.sessions > 0);  // the engine's thread may still be letting go of the last run
    CHECK(stats.kv_bytes == 0);
  }

  TEST_CASE("opening and loading a package while the n-th allocation fails: a typed error and no handle") {
    const char* folder = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";
    dsa_runtime* runtime = nullptr;
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    bool happened = true;
    int failures = 0;
    for (int64_t n = 0; happened;
         n += 1 + n / 12) {  // every point at first, then ever fewer of the thousands
      dsa_model* model = nullptr;
      dsa_status status;
      {
        FailNth fail(n);
        status = dsa_model_load_path(runtime, folder, nullptr, nullptr, &model);
        happened = fail.happened();
      }
      INFO("allocation ", n);
      CHECK((status == DSA_OK || status == DSA_ERROR_OUT_OF_MEMORY));
      CHECK((status == DSA_OK) == (model != nullptr));
      failures += status != DSA_OK;
      dsa_model_release(model);
    }
    CHECK(failures > 40);
    dsa_runtime_release(runtime);
  }

  TEST_CASE("creating a runtime and an engine without memory") {
    bool happened = true;
    int64_t n = 0;
    for (; happened && n < 500; ++n) {
      dsa_runtime* runtime = nullptr;
      dsa_status status;
      {
        FailNth fail(n);
        status = dsa_runtime_create(nullptr, &runtime);
        happened = fail.happened();
      }
      CHECK((status == DSA_OK || status == DSA_ERROR_OUT_OF_MEMORY));
      CHECK((status == DSA_OK) == (runtime != nullptr));
      dsa_runtime_release(runtime);
    }
    auto control = std::make_shared<Control>();
    happened = true;
    for (n = 0; happened && n < 500; ++n) {
      {
        EngineParts made = parts(control);
        FailNth fail(n);
        try {
          auto engine = Engine::create(std::move(made), {});
          if (!engine.is_ok()) happened = engine.status().code() == Code::out_of_memory;
        } catch (const std::bad_alloc&) {
        }
        happened = fail.happened();
      }
    }
    CHECK(n < 500);
  }

  TEST_CASE("an exception of any kind inside any entry point becomes a status") {
    Host host;
    dsa_session* session = host.session();
    dsa_prompt* prompt = host.user("q");
    dsa_run* run = host.start(session, "q");
    drain(run);
    dsa_runtime* no_runtime = nullptr;
    dsa_package* no_package = nullptr;
    dsa_model* no_model = nullptr;
    dsa_session* no_session = nullptr;
    dsa_prompt* no_prompt = nullptr;
    dsa_run* no_run = nullptr;
    dsa_source source = DSA_INIT(dsa_source);
    dsa_device_info device = DSA_INIT(dsa_device_info);
    dsa_package_info package = DSA_INIT(dsa_package_info);
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    dsa_session_info info = DSA_INIT(dsa_session_info);
    dsa_prompt_cost cost = DSA_INIT(dsa_prompt_cost);
    dsa_event event = DSA_INIT(dsa_event);
    dsa_result result = DSA_INIT(dsa_result);
    dsa_error error = DSA_INIT(dsa_error);
    dsa_run_stats run_stats = DSA_INIT(dsa_run_stats);
    dsa_str str{};
    size_t count = 0;
    const std::vector<std::function<dsa_status()>> calls = {
        [&] { return dsa_runtime_create(nullptr, &no_runtime); },
        [&] { return dsa_runtime_set_log(host.runtime, 0, nullptr, nullptr); },
        [&] { return dsa_runtime_count_devices(host.runtime, &count); },
        [&] { return dsa_runtime_get_device(host.runtime, 0, &device); },
        [&] { return dsa_package_open(host.runtime, &source, &no_package); },
        [&] { return dsa_package_get_info(nullptr, &package); },
        [&] { return dsa_package_get_meta(nullptr, "x", &str); },
        [&] { return dsa_model_load(nullptr, nullptr, nullptr, nullptr, nullptr, &no_model); },
        [&] { return dsa_model_load_path(host.runtime, "x", nullptr, nullptr, &no_model); },
        [&] { return dsa_model_close(host.model, 0); },
        [&] { return dsa_model_get_stats(host.model, &stats); },
        [&] { return dsa_model_tokenize(host.model, "x", 1, 0, nullptr, 0, &count); },
        [&] { return dsa_model_detokenize(host.model, nullptr, 0, 0, nullptr, 0, &count); },
        [&] { return dsa_prompt_create(host.runtime, &no_prompt); },
        [&] { return dsa_prompt_clear(prompt); },
        [&] { return dsa_prompt_message(prompt, 0); },
        [&] { return dsa_prompt_text(prompt, "x", 1); },
        [&] { return dsa_prompt_markup(prompt, "x", 1); },
        [&] { return dsa_prompt_tokens(prompt, nullptr, 0); },
        [&] { return dsa_prompt_add_json(prompt, "[]", 2); },
        [&] { return dsa_prompt_measure(prompt, host.model, nullptr, 0, &cost); },
        [&] { return dsa_prompt_render(prompt, host.model, nullptr, 0, &count); },
        [&] { return dsa_session_create(host.model, nullptr, &no_session); },
        [&] { return dsa_session_get_info(session, &info); },
        [&] { return dsa_session_cancel(session, DSA_STOP_KEEP); },
        [&] { return dsa_session_prefill(session, prompt, nullptr, nullptr, nullptr); },
        [&] { return dsa_session_generate(session, prompt, nullptr, nullptr, nullptr, &result); },
        [&] { return dsa_session_ask(session, "x", 1, nullptr, nullptr); },
        [&] { return dsa_run_start(session, prompt, nullptr, &no_run); },
        [&] { return dsa_run_next(run, 0, &event); },
        [&] { return dsa_run_cancel(run, DSA_STOP_KEEP); },
        [&] { return dsa_run_get_result(run, &result); },
        [&] { return dsa_run_get_error(run, &error); },
        [&] { return dsa_run_get_text(run, 0, &str); },
        [&] { return dsa_run_get_stats(run, &run_stats); },
    };
    const std::vector<std::pair<void (*)(), dsa_status>> kinds = {
        {[] { throw std::bad_alloc(); }, DSA_ERROR_OUT_OF_MEMORY},
        {[] { throw std::runtime_error("thrown by a test"); }, DSA_ERROR_INTERNAL},
        {[] { throw 42; }, DSA_ERROR_INTERNAL}};
    for (const auto& [hook, expected] : kinds) {
      for (const auto& call : calls) {
        api::guard_hook = hook;
        const dsa_status status = call();
        api::guard_hook = nullptr;
        CHECK(status == expected);
        CHECK(last_error().code == expected);
        CHECK(last_error().message.len > 0);
      }
      api::guard_hook = hook;
      dsa_runtime_retain(host.runtime);
      dsa_package_retain(nullptr);
      dsa_model_retain(host.model);
      dsa_session_retain(session);
      dsa_run_retain(run);
      dsa_runtime_release(host.runtime);
      dsa_package_release(nullptr);
      dsa_model_release(host.model);
      dsa_session_release(session);
      dsa_run_release(run);
      dsa_prompt_release(prompt);
      dsa_abi_json();
      api::guard_hook = nullptr;
    }
    CHECK(no_runtime == nullptr);
    CHECK(no_run == nullptr);
    CHECK(ask(host, session, "still works").finish == DSA_FINISH_STOP);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("a decode step allocates nothing in the engine") {
    Host host;
    host.control->script["q"] = bytes_of(std::string(2000, 'a'));
    dsa_session* session = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 10;
    ask(host, session, "q", &options);
    dsa_session_release(session);
    int64_t counts[2];
    for (const int i : {0, 1}) {
      session = host.session();
      options.max_tokens = i == 0 ? 500 : 1500;
      FailNth fail(INT64_MAX);
      dsa_prompt* prompt = host.user("q");
      dsa_run* run = nullptr;
      dsa_run_start(session, prompt, &options, &run);
      dsa_result result = DSA_INIT(dsa_result);
      while (dsa_run_get_result(run, &result) == DSA_PENDING) std::this_thread::yield();
      counts[i] = allocations;
      dsa_run_release(run);
      dsa_prompt_release(prompt);
      dsa_session_release(session);
    }
    CHECK(counts[1] - counts[0] <
          20);  // a thousand tokens more: the text that nobody reads grows a few times
  }

  TEST_CASE("a decode step of a real model allocates nothing") {
    const char* folder = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";
    dsa_runtime* runtime = nullptr;
    dsa_model* model = nullptr;
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    REQUIRE(dsa_model_load_path(runtime, folder, nullptr, nullptr, &model) == DSA_OK);
    const dsa_token tokens[] = {5, 17, 300, 2}, end = 370;
    const float never = -INFINITY;
    dsa_sampling sampling = DSA_SAMPLING_INIT;
    sampling.temperature = 0;
    sampling.num_bias = 1;
    sampling.bias_tokens = &end;
    sampling.bias_values = &never;
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.sampling = &sampling;
    int64_t counts[3];
    for (const int i : {0, 1, 2}) {  // the first one only warms up
      dsa_session* session = nullptr;
      dsa_prompt* prompt = nullptr;
      dsa_run* run = nullptr;
      REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
      REQUIRE(dsa_prompt_create(runtime, &prompt) == DSA_OK);
      REQUIRE(dsa_prompt_tokens(prompt, tokens, 4) == DSA_OK);
      options.max_tokens = i == 1 ? 20 : 520;
      FailNth fail(INT64_MAX);
      REQUIRE(dsa_run_start(session, prompt, &options, &run) == DSA_OK);
      dsa_result result = DSA_INIT(dsa_result);
      while (dsa_run_get_result(run, &result) == DSA_PENDING) std::this_thread::yield();
      CHECK(result.finish == DSA_FINISH_LENGTH);
      counts[i] = allocations;
      dsa_run_release(run);
      dsa_prompt_release(prompt);
      dsa_session_release(session);
    }
    CHECK(counts[2] - counts[1] < 10);  // 500 tokens and 8 pages more: the lists of pages grow a few times
    dsa_model_release(model);
    dsa_runtime_release(runtime);
  }
}
