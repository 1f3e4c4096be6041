// Handles: every order of release, closing, threads, fork.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

namespace {

// Runtime, model, session, prompt and run of their own, to be released in any order.
struct Five {
  dsa_runtime* runtime = nullptr;
  dsa_model* model = nullptr;
  dsa_session* session = nullptr;
  dsa_prompt* prompt = nullptr;
  dsa_run* run = nullptr;
  std::shared_ptr<Control> control = std::make_shared<Control>();

  explicit Five(bool blocked) {
    if (blocked) control->shut();
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    auto engine = Engine::create(parts(control, runtime->impl), {});
    REQUIRE(engine.is_ok());
    model = new dsa_model(std::move(engine).value());
    REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
    REQUIRE(dsa_prompt_create(runtime, &prompt) == DSA_OK);
    REQUIRE(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
    REQUIRE(dsa_prompt_text(prompt, "question", DSA_NTS) == DSA_OK);
    REQUIRE(dsa_run_start(session, prompt, nullptr, &run) == DSA_OK);
    if (blocked) control->wait_until_blocked();
  }
  void release(int which) {
    if (which == 0) dsa_runtime_release(runtime);
    if (which == 1) dsa_model_release(model);
    if (which == 2) dsa_session_release(session);
    if (which == 3) dsa_prompt_release(prompt);
    if (which == 4) dsa_run_release(run);
  }
};

}  // namespace

TEST_SUITE("engine/lifetime") {
  TEST_CASE("every order of release, with the run ended and with the run in work") {
    for (const bool blocked : {false, true}) {
      std::vector<int> order = {0, 1, 2, 3, 4};
      do {
        Five five(blocked);
        if (!blocked) drain_rest(five.run);
        for (size_t i = 0; i < order.size(); ++i) {
          five.release(order[i]);
          if (i == 2) five.control->open();
        }
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }

  TEST_CASE("a run outlives its session's handle and ends with keep") {
    Five five(true);
    dsa_session_release(five.session);
    dsa_model_release(five.model);
    dsa_runtime_release(five.runtime);
    five.control->open();
    const Heard heard = drain(five.run);
    CHECK(heard.finish == DSA_FINISH_CANCELLED);
    CHECK(result_of(five.run).status == DSA_OK);
    dsa_run_release(five.run);
    dsa_prompt_release(five.prompt);
  }

  TEST_CASE("releasing a run cancels it, and the session is ready after the step") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::milliseconds(1); });
    host.control->script["q"] = bytes_of(std::string(3000, 'a'));
    dsa_session* session = host.session();
    dsa_run_release(host.start(session, "q"));
    dsa_session_info info = DSA_INIT(dsa_session_info);
    const auto began = std::chrono::steady_clock::now();
    do CHECK(dsa_session_get_info(session, &info) == DSA_OK);
    while (info.state == DSA_SESSION_RUNNING);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(1));
    dsa_session_release(session);
  }

  TEST_CASE("close ends all runs, frees everything, and what is left answers CLOSED") {
    Host host({}, [](Control& c) { c.step_sequences = 1; });
    host.control->shut();
    dsa_session *a = host.session(), *b = host.session();
    dsa_run *running = host.start(a, "running"), *queued = host.start(b, "queued");
    host.control->wait_until_blocked();
    CHECK(dsa_model_close(host.model, 0) == DSA_PENDING);
    CHECK(dsa_model_close(host.model, 5) == DSA_PENDING);
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.state == DSA_MODEL_CLOSED);
    host.control->open();
    CHECK(dsa_model_close(host.model, DSA_FOREVER) == DSA_OK);
    CHECK(dsa_model_close(host.model, 0) == DSA_OK);
    for (dsa_run* run : {running, queued}) {
      CHECK(drain(run).finish == DSA_FINISH_CANCELLED);
      CHECK(result_of(run).status == DSA_ERROR_CLOSED);
    }
    CHECK(host.control.use_count() == 1);  // the model object is gone
    dsa_session_info info = DSA_INIT(dsa_session_info);
    dsa_session* session = nullptr;
    dsa_run* run = nullptr;
    size_t count = 0;
    dsa_prompt* prompt = host.user("x");
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_ERROR_CLOSED);
    CHECK(dsa_session_create(host.model, nullptr, &session) == DSA_ERROR_CLOSED);
    CHECK(dsa_session_get_info(a, &info) == DSA_ERROR_CLOSED);
    CHECK(dsa_session_cancel(a, DSA_STOP_KEEP) == DSA_ERROR_CLOSED);
    CHECK(dsa_session_ask(a, "x", 1, nullptr, nullptr) == DSA_ERROR_CLOSED);
    CHECK(dsa_run_start(a, prompt, nullptr, &run) == DSA_ERROR_CLOSED);
    CHECK(dsa_session_prefill(a, prompt, nullptr, nullptr, nullptr) == DSA_ERROR_CLOSED);
    CHECK(dsa_model_tokenize(host.model, "x", 1, 0, nullptr, 0, &count) == DSA_ERROR_CLOSED);
    CHECK(dsa_prompt_render(prompt, host.model, nullptr, 0, &count) == DSA_ERROR_CLOSED);
    CHECK(dsa_run_cancel(running, DSA_STOP_KEEP) == DSA_OK);
    dsa_prompt_release(prompt);
    dsa_run_release(running);
    dsa_run_release(queued);
    dsa_session_release(a);
    dsa_session_release(b);
  }

  TEST_CASE("close while another thread generates") {
    for (int round = 0; round < 20; ++round) {
      Host host({}, [](Control& c) { c.step_time = std::chrono::microseconds(100); });
      host.control->script["q"] = bytes_of(std::string(2000, 'a'));
      dsa_session* session = host.session();
      std::atomic<bool> heard{false};
      dsa_status status = 99;
      std::thread thread([&] {
        status = dsa_session_ask(
            session, "q", 1,
            [](void* ud, const dsa_event*) -> int32_t {
              return *static_cast<std::atomic<bool>*>(ud) = true, DSA_CONTINUE;
            },
            &heard);
      });
      while (!heard) std::this_thread::yield();
      CHECK(dsa_model_close(host.model, DSA_FOREVER) == DSA_OK);
      thread.join();
      CHECK(status == DSA_ERROR_CLOSED);
      dsa_session_release(session);
    }
  }

  TEST_CASE("a blocking call is cancelled from another thread; later calls are not touched") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::microseconds(300); });
    host.control->script["q"] = bytes_of(std::string(3000, 'a'));
    host.control->script["short"] = bytes_of("ok");
    dsa_session* session = host.session();
    std::atomic<bool> heard{false};
    dsa_status status = 99;
    std::thread thread([&] {
      status = dsa_session_ask(
          session, "q", 1,
          [](void* ud, const dsa_event*) -> int32_t {
            return *static_cast<std::atomic<bool>*>(ud) = true, DSA_CONTINUE;
          },
          &heard);
    });
    while (!heard) std::this_thread::yield();
    CHECK(dsa_session_cancel(session, DSA_STOP_ROLLBACK) == DSA_OK);
    thread.join();
    CHECK(status == DSA_ERROR_CANCELLED);
    CHECK(dsa_session_cancel(session, DSA_STOP_ROLLBACK) == DSA_OK);
    CHECK(dsa_session_cancel(session, 0) == DSA_ERROR_ARGUMENT);
    CHECK(ask(host, session, "short").answer() == "ok");
    dsa_session_release(session);
  }

  TEST_CASE("eight threads: start, read, cancel, release, all at once") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::microseconds(20); });
    std::vector<std::thread> threads;
    std::atomic<int> wakeups{0};
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 12; ++i) {
          dsa_session* session = nullptr;
          dsa_prompt* prompt = nullptr;
          dsa_run* run = nullptr;
          CHECK(dsa_session_create(host.model, nullptr, &session) == DSA_OK);
          CHECK(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
          CHECK(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
          CHECK(dsa_prompt_text(prompt, std::string(size_t(1 + (t * 13 + i * 7) % 60), 'z').c_str(),
                                DSA_NTS) == DSA_OK);
          dsa_run_options options = DSA_INIT(dsa_run_options);
          options.priority = (t + i) % 3;
          options.on_ready = [](void* ud) { ++*static_cast<std::atomic<int>*>(ud); };
          options.on_ready_ud = &wakeups;
          CHECK(dsa_run_start(session, prompt, &options, &run) == DSA_OK);
          dsa_run_retain(run);
          std::thread stopper([run, i] {
            if (i % 3 == 0) dsa_run_cancel(run, i % 2 == 0 ? DSA_STOP_KEEP : DSA_STOP_ROLLBACK);
            dsa_result result = DSA_INIT(dsa_result);
            dsa_run_get_result(run, &result);
            dsa_run_release(run);
          });
          if (i % 4 == 1) dsa_session_release(session), session = nullptr;
          if (i % 5 != 2) CHECK(drain_rest(run) == 1);
          dsa_run_release(run);
          stopper.join();
          if (session != nullptr && i % 5 != 2)
            CHECK(dsa_session_ask(session, "x", 1, nullptr, nullptr) == DSA_OK);
          dsa_prompt_release(prompt);
          dsa_session_release(session);
        }
      });
    for (std::thread& thread : threads) thread.join();
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    do CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    while (stats.sessions > 0 || stats.running > 0);
    CHECK(stats.kv_bytes == 0);
  }

  TEST_CASE("a thousand sessions, one after the other and at once, return their memory") {
    Host host;
    std::vector<dsa_session*> sessions;
    for (int i = 0; i < 1000; ++i) sessions.push_back(host.session());
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 2;
    for (int i = 0; i < 1000; i += 10) ask(host, sessions[size_t(i)], "x", &options);
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.kv_bytes == 100 * kPageSize * sizeof(float));
    for (dsa_session* session : sessions) dsa_session_release(session);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.kv_bytes == 0);
    CHECK(stats.sessions == 0);
  }

  TEST_CASE("a pool that idle sessions fill: an error with bytes at start, and room again after a release") {
    Host host({.default_context = 128, .pool_sessions = 1});  // two pages
    dsa_session *a = host.session(), *b = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 3;
    CHECK(ask(host, a, std::string(70, 'x'), &options).finish == DSA_FINISH_LENGTH);
    dsa_prompt* prompt = host.user("x");
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(b, prompt, &options, &run) == DSA_ERROR_OUT_OF_MEMORY);
    CHECK(last_error().needed > last_error().available);
    dsa_session_release(a);
    CHECK(ask(host, b, "x", &options).finish == DSA_FINISH_LENGTH);
    dsa_prompt_release(prompt);
    dsa_session_release(b);
  }

  TEST_CASE("a run waits while one in work holds the pool") {
    Host host({.default_context = 128, .pool_sessions = 1});
    dsa_session *a = host.session(), *b = host.session();
    host.control->shut();
    dsa_run* first = host.start(a, "x");  // may grow to 128 tokens
    host.control->wait_until_blocked();
    dsa_run* second = host.start(b, "y");
    host.control->open();
    CHECK(drain(first).finish == DSA_FINISH_STOP);
    const Heard heard = drain(second);  // one page is left, its own limit needs two
    CHECK(heard.finish == DSA_FINISH_ERROR);
    CHECK(result_of(second).status == DSA_ERROR_OUT_OF_MEMORY);
    CHECK(info_of(b).num_tokens == 0);
    dsa_run_release(first);
    dsa_run_release(second);
    dsa_session_release(a);
    dsa_session_release(b);
  }

  TEST_CASE("threads of the library announce themselves and block signals") {
    struct Ud {
      std::atomic<int> inside{0}, calls{0};
      std::atomic<bool> blocked{false};
    } ud;
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    options.on_thread_ud = &ud;
    options.on_thread = [](void* p, const char* name, int32_t entering) {
      Ud& u = *static_cast<Ud*>(p);
      CHECK(std::string(name).starts_with("dsa-"));
      u.inside += entering ? 1 : -1;
      ++u.calls;
      sigset_t set;
      pthread_sigmask(SIG_SETMASK, nullptr, &set);
      u.blocked = sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGTERM) == 1;
    };
    dsa_runtime* runtime = nullptr;
    REQUIRE(dsa_runtime_create(&options, &runtime) == DSA_OK);
    CHECK(ud.calls == 0);
    auto engine = Engine::create(parts(std::make_shared<Control>(), runtime->impl), {});
    REQUIRE(engine.is_ok());
    dsa_model* model = new dsa_model(std::move(engine).value());
    CHECK(dsa_model_close(model, DSA_FOREVER) == DSA_OK);
    dsa_model_release(model);
    while (ud.calls < 2) std::this_thread::yield();
    CHECK(ud.inside == 0);
    CHECK(ud.blocked);
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    CHECK(sigismember(&set, SIGINT) == 0);
    dsa_runtime_release(runtime);
  }

#if !defined(__SANITIZE_THREAD__)
  TEST_CASE("after fork every call in the child answers FORKED, and releases do nothing") {
    Host host;
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q");
    dsa_prompt* prompt = host.user("q");
    const pid_t child = fork();
    if (child == 0) {
      dsa_event e = DSA_INIT(dsa_event);
      dsa_session_info info = DSA_INIT(dsa_session_info);
      dsa_result result = DSA_INIT(dsa_result);
      dsa_error error = DSA_INIT(dsa_error);
      dsa_session* made = nullptr;
      size_t count = 0;
      dsa_runtime* fresh = nullptr;
      const bool good = dsa_run_next(run, DSA_FOREVER, &e) == DSA_ERROR_FORKED &&
                        dsa_session_get_info(session, &info) == DSA_ERROR_FORKED &&
                        dsa_session_ask(session, "x", 1, nullptr, nullptr) == DSA_ERROR_FORKED &&
                        dsa_session_create(host.model, nullptr, &made) == DSA_ERROR_FORKED &&
                        dsa_model_close(host.model, DSA_FOREVER) == DSA_ERROR_FORKED &&
                        dsa_prompt_clear(prompt) == DSA_ERROR_FORKED &&
                        dsa_run_cancel(run, DSA_STOP_KEEP) == DSA_ERROR_FORKED &&
                        dsa_run_get_result(run, &result) == DSA_ERROR_FORKED &&
                        dsa_runtime_count_devices(host.runtime, &count) == DSA_ERROR_FORKED &&
                        dsa_last_error(&error) == DSA_OK && error.code == DSA_ERROR_FORKED &&
                        dsa_runtime_create(nullptr, &fresh) == DSA_OK &&
                        dsa_runtime_count_devices(fresh, &count) == DSA_OK;
      dsa_run_release(run);
      dsa_session_release(session);
      dsa_model_release(host.model);
      dsa_runtime_release(host.runtime);
      _exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    drain(run);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }
#endif

  TEST_CASE("the log: one call at a time, replaced for good, refused from inside") {
    struct Ud {
      std::atomic<int> lines{0};
      std::atomic<int> set{0};
      dsa_runtime* runtime = nullptr;
    } ud;
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    options.log_level = DSA_LOG_DEBUG;
    options.log_ud = &ud;
    options.log = [](void* p, int32_t, const char*, const char* line) {
      Ud& u = *static_cast<Ud*>(p);
      CHECK(line[0] != 0);
      ++u.lines;
      if (u.runtime != nullptr) u.set = dsa_runtime_set_log(u.runtime, DSA_LOG_OFF, nullptr, nullptr);
      throw 1;
    };
    dsa_runtime* runtime = nullptr;
    REQUIRE(dsa_runtime_create(&options, &runtime) == DSA_OK);
    ud.runtime = runtime;
    runtime->impl->log(LogLevel::info, "test", "a line ", 1);
    CHECK(ud.lines == 1);
    CHECK(ud.set == DSA_ERROR_REENTRANT);
    CHECK(dsa_runtime_set_log(runtime, DSA_LOG_ERROR, options.log, &ud) == DSA_OK);
    runtime->impl->log(LogLevel::info, "test", "too fine");
    CHECK(ud.lines == 1);
    CHECK(dsa_runtime_set_log(runtime, DSA_LOG_DEBUG, nullptr, nullptr) == DSA_OK);
    runtime->impl->log(LogLevel::error, "test", "nobody");
    CHECK(ud.lines == 1);
    CHECK(dsa_runtime_set_log(runtime, 9, nullptr, nullptr) == DSA_ERROR_ARGUMENT);
    dsa_runtime_release(runtime);
  }

  TEST_CASE(
      "GPU-02 a device that goes away ends the runs with that reason, and the model says that it is lost") {
    Host host;
    host.control->fail_code = Code::device_lost;
    dsa_session* session = host.session();
    CHECK(host.stats().state == DSA_MODEL_READY);
    ask(host, session, "hi");
    const uint32_t tokens = info_of(session).num_tokens;
    host.control->fail_at = host.control->steps + 2;
    dsa_run* run = host.start(session, "and now");
    drain(run);
    CHECK(result_of(run).status == DSA_ERROR_DEVICE_LOST);
    CHECK(info_of(session).num_tokens == tokens);  // as before the run
    CHECK(host.stats().state == DSA_MODEL_LOST);
    dsa_run_release(run);
    dsa_session_release(session);
  }
}
