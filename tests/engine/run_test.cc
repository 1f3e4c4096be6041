// Runs through the C interface: events, texts, endings, stopping, queue, fairness.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

TEST_SUITE("engine/run") {
  TEST_CASE("a question is answered: START, PREFILL, TEXT, DONE, END") {
    Host host;
    host.control->script["hi"] = bytes_of("hello there");
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "hi");
    const Heard heard = drain(run);
    CHECK(heard.answer() == "hello there");
    CHECK(heard.finish == DSA_FINISH_STOP);
    CHECK(heard.types[1] == DSA_EVENT_PREFILL);
    const dsa_result result = result_of(run);
    CHECK(result.status == DSA_OK);
    CHECK(result.prompt_tokens == 5);
    CHECK(result.output_tokens == 12);
    CHECK(result.stop_index == kEndTurn);
    CHECK(result.seed != 0);
    CHECK(heard.num_tokens == 12);
    CHECK(info_of(session).num_tokens == 17);
    CHECK(info_of(session).turns == 1);
    CHECK(info_of(session).state == DSA_SESSION_IDLE);
    dsa_run_stats stats = DSA_INIT(dsa_run_stats);
    CHECK(dsa_run_get_stats(run, &stats) == DSA_OK);
    CHECK(stats.total_ms >= stats.first_token_ms);
    CHECK(stats.total_ms >= stats.decode_ms);
    dsa_error error = DSA_INIT(dsa_error);
    CHECK(dsa_run_get_error(run, &error) == DSA_OK);
    CHECK(error.code == 0);
    dsa_run_release(run);
    dsa_session_release(session);
  }

  TEST_CASE("channels, control tokens, and characters that tokens split") {
    Host host;
    std::vector<TokenId> script = {kThink};
    for (const TokenId t : bytes_of("hm \xc3")) script.push_back(t);  // the second half never comes
    script.push_back(kAnswer);
    for (const TokenId t : bytes_of("<end> ")) script.push_back(t);  // spelled, not meant
    for (const TokenId t : {kSplit1, kSplit2, kSplit3, kSplit4}) script.push_back(t);
    script.push_back(0xff);
    for (const TokenId t : bytes_of("z\xe2\x82")) script.push_back(t);
    host.control->script["q"] = script;
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q");
    const Heard heard = drain(run);
    CHECK(heard.text[DSA_CHANNEL_REASONING] == "hm \xef\xbf\xbd");
    CHECK(heard.answer() == "<end> \xf0\x9f\x98\x80\xef\xbf\xbdz\xef\xbf\xbd");
    CHECK(result_of(run).reasoning_tokens > 0);
    dsa_run_release(run);
    dsa_session_release(session);
  }

  TEST_CASE("stop texts across tokens") {
    Host host;
    host.control->script["q"] = bytes_of("abc DEFGHIJ xyz");
    const auto with_stops = [&](std::vector<std::string> stops) {
      std::vector<dsa_str> views;
      for (const std::string& stop : stops) views.push_back({stop.data(), stop.size()});
      dsa_run_options options = DSA_INIT(dsa_run_options);
      options.stops = views.data();
      options.num_stops = views.size();
      dsa_session* session = host.session();
      dsa_run* run = host.start(session, "q", &options);
      Heard heard = drain(run);
      const dsa_result result = result_of(run);
      CHECK(result.finish == heard.finish);
      if (heard.finish == DSA_FINISH_STOP_TEXT) heard.num_tokens = result.stop_index;
      dsa_run_release(run);
      dsa_session_release(session);
      return heard;
    };
    Heard heard = with_stops({"nothing", "DEFGHIJ"});
    CHECK(heard.finish == DSA_FINISH_STOP_TEXT);
    CHECK(heard.answer() == "abc ");
    CHECK(heard.num_tokens == 1);
    heard = with_stops({"DEFGHIX", "xyz!"});
    CHECK(heard.finish == DSA_FINISH_STOP);
    CHECK(heard.answer() == "abc DEFGHIJ xyz");  // near misses come complete
    heard = with_stops({"DEFGHIJ", "DEF"});
    CHECK(heard.answer() == "abc ");
  }

  TEST_CASE("max_tokens, then the next turn continues from what was cut off") {
    Host host;
    host.control->script["q"] = bytes_of("0123456789");
    dsa_session* session = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 4;
    const Heard heard = ask(host, session, "q", &options);
    CHECK(heard.finish == DSA_FINISH_LENGTH);
    CHECK(heard.answer() == "0123");
    CHECK(info_of(session).num_tokens == 4 + 4 + 1);  // the prompt, the answer, <end>
    CHECK(ask(host, session, "q", &options).answer() == "0123");
    options.max_tokens = 10;  // the end token would have been the eleventh
    CHECK(ask(host, session, "q", &options).finish == DSA_FINISH_LENGTH);
    options.max_tokens = 11;
    CHECK(ask(host, session, "q", &options).finish == DSA_FINISH_STOP);
    dsa_session_release(session);
  }

  TEST_CASE("a launch ahead that throws is made again with the same random numbers") {
    std::string undisturbed;
    for (const int at :
         {-1, 2, 3, 5, 8, 11}) {  // -1: none; the prompt and the step behind it have nothing in front
      Host host;
      host.control->samples = true;
      host.control->script["q"] = bytes_of("0123456789012345678901234567890123456789");
      host.control->throw_at = at;
      dsa_session* session = host.session();
      dsa_sampling sampling = DSA_SAMPLING_INIT;
      sampling.temperature = 2;
      dsa_run_options options = DSA_INIT(dsa_run_options);
      options.sampling = &sampling;
      options.seed = 5;
      options.max_tokens = 16;
      const Heard heard = ask(host, session, "q", &options);
      CHECK(heard.finish == DSA_FINISH_LENGTH);
      if (at == -1) undisturbed = heard.answer();
      CHECK(heard.answer() == undisturbed);
      dsa_session_release(session);
    }
    CHECK(undisturbed != "0123456789012345");
  }

  TEST_CASE("prompts at and around the step size") {
    for (const int size : {1, 12, 13, 14, 28, 29, 30, 31, 160, 200}) {
      Host host;
      host.control->script[std::string(size_t(size), 'x')] = bytes_of("ok");
      dsa_session* session = host.session();
      dsa_run* run = host.start(session, std::string(size_t(size), 'x'));
      uint64_t done = 0, total = 0;
      int chunks = 0;
      dsa_event e = DSA_INIT(dsa_event);
      Heard heard;
      while (dsa_run_next(run, DSA_FOREVER, &e) == DSA_OK) {
        heard.take(e);
        if (e.type != DSA_EVENT_PREFILL) continue;
        CHECK(e.done > done);
        done = e.done, total = e.total, ++chunks;
      }
      CHECK(heard.answer() == "ok");
      CHECK(done == total);
      CHECK(total == uint64_t(size) + 3);
      CHECK(chunks == (size + 3 + 15) / 16);
      dsa_run_release(run);
      dsa_session_release(session);
    }
  }

  TEST_CASE("the context: exactly full, one too many, full in mid-answer") {
    Host host;
    host.control->script["qq"] = bytes_of("0123456789");
    dsa_run_options options = DSA_INIT(dsa_run_options);
    dsa_prompt* prompt = host.user("qq");  // 5 tokens
    dsa_run* run = nullptr;

    options.max_tokens = 3;
    dsa_session* session = host.session(8);
    CHECK(ask(host, session, "qq", &options).finish == DSA_FINISH_LENGTH);
    dsa_session_release(session);

    session = host.session(7);
    CHECK(dsa_run_start(session, prompt, &options, &run) == DSA_ERROR_CONTEXT_FULL);
    CHECK(last_error().needed == 8);
    CHECK(last_error().available == 7);
    CHECK(last_error().fix == DSA_FIX_SHORTEN);
    CHECK(run == nullptr);
    CHECK(info_of(session).num_tokens == 0);
    CHECK(info_of(session).state == DSA_SESSION_IDLE);
    options.max_tokens = 0;  // only the prompt has to fit
    Heard heard = ask(host, session, "qq", &options);
    CHECK(heard.finish == DSA_FINISH_CONTEXT);
    CHECK(heard.answer() == "01");
    CHECK(dsa_run_start(session, prompt, &options, &run) == DSA_ERROR_CONTEXT_FULL);
    CHECK(last_error().available == 0);
    dsa_session_release(session);

    session = host.session(7, DSA_OVERFLOW_FINISH);
    options.max_tokens = 3;
    CHECK(ask(host, session, "qq", &options).finish == DSA_FINISH_CONTEXT);
    dsa_session_release(session);
    session = host.session(5);
    options.max_tokens = 0;
    heard = ask(host, session, "qq", &options);
    CHECK(heard.finish == DSA_FINISH_CONTEXT);
    CHECK(heard.answer().empty());
    dsa_session_release(session);
    session = host.session(4);
    CHECK(dsa_run_start(session, prompt, &options, &run) == DSA_ERROR_CONTEXT_FULL);
    dsa_session_release(session);
    dsa_prompt_release(prompt);

    dsa_session_options too_large = DSA_INIT(dsa_session_options);
    too_large.context_tokens = 4097;
    CHECK(dsa_session_create(host.model, &too_large, &session) == DSA_ERROR_LIMIT);
    CHECK(last_error().available == 4096);
  }

  TEST_CASE("nothing to compute is an error") {
    Host host;
    dsa_session* session = host.session();
    dsa_prompt* prompt = nullptr;
    dsa_run* run = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
    CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_prompt_tokens(prompt, nullptr, 0) == DSA_OK);
    CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_session_prefill(session, prompt, nullptr, nullptr, nullptr) == DSA_ERROR_ARGUMENT);
    const dsa_token bad[] = {1, kVocab};
    CHECK(dsa_prompt_tokens(prompt, bad, 2) == DSA_OK);
    CHECK(dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_ARGUMENT);
    CHECK(last_error().position == 1);
    CHECK(dsa_prompt_text(prompt, "x", 1) == DSA_ERROR_STATE);
    CHECK(dsa_prompt_message(prompt, 9) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_prompt_clear(prompt) == DSA_OK);
    CHECK(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
    CHECK(dsa_prompt_text(prompt, "ab\xff", 3) == DSA_ERROR_UTF8);
    CHECK(last_error().position == 2);
    CHECK(dsa_session_ask(session, "", 0, nullptr, nullptr) == DSA_OK);  // an empty message is a message
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("raw tokens pass through no template") {
    Host host;
    dsa_session* session = host.session();
    dsa_prompt* prompt = nullptr;
    dsa_run* run = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
    const dsa_token tokens[] = {'a', 'b', 'c'};
    CHECK(dsa_prompt_tokens(prompt, tokens, 3) == DSA_OK);
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.max_tokens = 5;
    REQUIRE(dsa_run_start(session, prompt, &options, &run) == DSA_OK);
    CHECK(drain(run).answer().size() == 5);
    CHECK(result_of(run).prompt_tokens == 3);
    CHECK(info_of(session).num_tokens == 8);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("eight sessions at once answer as each would alone") {
    std::vector<std::string> alone;
    for (int i = 0; i < 8; ++i) {
      Host host;
      dsa_session* session = host.session();
      std::string all;
      for (int turn = 0; turn < 3; ++turn)
        all += ask(host, session, "question " + std::to_string(i * 7 + turn)).answer();
      alone.push_back(all);
      dsa_session_release(session);
    }
    Host host;
    std::vector<dsa_session*> sessions;
    for (int i = 0; i < 8; ++i) sessions.push_back(host.session());
    std::vector<std::string> together(8);
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<dsa_run*> runs;
      for (int i = 0; i < 8; ++i)
        runs.push_back(host.start(sessions[size_t(i)], "question " + std::to_string(i * 7 + turn)));
      for (int i = 0; i < 8; ++i) {
        together[size_t(i)] += drain(runs[size_t(i)]).answer();
        dsa_run_release(runs[size_t(i)]);
      }
    }
    CHECK(together == alone);
    size_t most = 0;
    for (const auto& plan : host.control->plans) most = std::max(most, plan.size());
    CHECK(most > 1);
    for (dsa_session* session : sessions) dsa_session_release(session);
  }

  TEST_CASE("a long prompt does not stall those who decode") {
    Host host({.chunk = 4});
    host.control->shut();
    dsa_session *a = host.session(), *b = host.session();
    dsa_run* first = host.start(a, "short");
    host.control->wait_until_blocked();
    dsa_run* second = host.start(b, std::string(200, 'y'));
    host.control->open();
    drain(first);
    drain(second);
    int decodes_beside_prompts = 0;
    for (const auto& plan : host.control->plans)
      if (plan.size() == 2 && plan[0] == 1 && plan[1] > 1) {
        ++decodes_beside_prompts;
        CHECK(plan[1] <= 4);
      }
    CHECK(decodes_beside_prompts >= 10);
    dsa_run_release(first);
    dsa_run_release(second);
    dsa_session_release(a);
    dsa_session_release(b);
  }

  TEST_CASE("the queue: classes, order, and its limit") {
    Host host({.queue_limit = 3}, [](Control& c) { c.step_sequences = 1; });
    host.control->shut();
    std::vector<dsa_session*> sessions;
    for (int i = 0; i < 5; ++i) sessions.push_back(host.session());
    dsa_run* running = host.start(sessions[0], "0");
    host.control->wait_until_blocked();
    const int32_t classes[] = {DSA_PRIORITY_BACKGROUND, DSA_PRIORITY_NORMAL, DSA_PRIORITY_INTERACTIVE};
    std::vector<dsa_run*> runs;
    for (int i = 0; i < 3; ++i) {
      dsa_run_options options = DSA_INIT(dsa_run_options);
      options.priority = classes[i];
      runs.push_back(host.start(sessions[size_t(i) + 1], std::to_string(i + 1), &options));
    }
    dsa_prompt* prompt = host.user("4");
    dsa_run* refused = nullptr;
    CHECK(dsa_run_start(sessions[4], prompt, nullptr, &refused) == DSA_ERROR_QUEUE_FULL);
    CHECK(refused == nullptr);
    CHECK(last_error().fix == DSA_FIX_RETRY);
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.running == 1);
    CHECK(stats.queued == 3);
    CHECK(stats.sessions == 5);
    host.control->open();
    drain(running);
    for (dsa_run* run : runs) drain(run);
    const auto took = [](dsa_run* run) {
      dsa_run_stats s = DSA_INIT(dsa_run_stats);
      CHECK(dsa_run_get_stats(run, &s) == DSA_OK);
      return s.total_ms;
    };
    CHECK(took(runs[2]) < took(runs[1]));
    CHECK(took(runs[1]) < took(runs[0]));
    CHECK(ask(host, sessions[4], "4").finish == DSA_FINISH_STOP);
    dsa_prompt_release(prompt);
    dsa_run_release(running);
    for (dsa_run* run : runs) dsa_run_release(run);
    for (dsa_session* session : sessions) dsa_session_release(session);
  }

  TEST_CASE("background runs wait while others work") {
    Host host;
    host.control->shut();
    dsa_session *a = host.session(), *b = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.priority = DSA_PRIORITY_BACKGROUND;
    dsa_run* background = host.start(a, "background", &options);
    host.control->wait_until_blocked();
    dsa_run* normal = host.start(b, "normal");
    host.control->open();
    drain(normal);
    drain(background);
    size_t changes = 0;
    for (const auto& plan : host.control->plans) changes = std::max(changes, plan.size());
    CHECK(changes == 1);  // never in one step
    dsa_run_release(background);
    dsa_run_release(normal);
    dsa_session_release(a);
    dsa_session_release(b);
  }

  TEST_CASE("a background run takes no place from others") {
    Host host({}, [](Control& c) { c.step_sequences = 1; });
    host.control->shut();
    dsa_session *a = host.session(), *b = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.priority = DSA_PRIORITY_BACKGROUND;
    dsa_run* background = host.start(a, "background", &options);
    host.control->wait_until_blocked();
    dsa_run* normal = host.start(b, "normal");
    host.control->open();
    drain(normal);
    drain(background);
    dsa_run_stats first = DSA_INIT(dsa_run_stats), second = DSA_INIT(dsa_run_stats);
    CHECK(dsa_run_get_stats(background, &first) == DSA_OK);
    CHECK(dsa_run_get_stats(normal, &second) == DSA_OK);
    CHECK(first.total_ms > second.total_ms);
    dsa_run_release(background);
    dsa_run_release(normal);
    dsa_session_release(a);
    dsa_session_release(b);
  }

  // What a session that has seen nothing but `first` answers next.
  std::string next_answer_after(const std::vector<std::string>& first, const std::string& then) {
    Host host;
    dsa_session* session = host.session();
    for (const std::string& text : first) ask(host, session, text);
    const std::string answer = ask(host, session, then).answer();
    dsa_session_release(session);
    return answer;
  }

  TEST_CASE("rollback, wherever it strikes, leaves the session as an untouched one") {
    const std::string expected = next_answer_after({"one"}, "three");
    enum class When { in_queue, in_prompt, in_answer, nan, fault, exception };
    for (const When when :
         {When::in_queue, When::in_prompt, When::in_answer, When::nan, When::fault, When::exception}) {
      INFO("case ", int(when));
      Host host({}, [](Control& c) { c.step_sequences = 1; });
      Control& control = *host.control;
      dsa_session *session = host.session(), *other = host.session();
      ask(host, session, "one");
      const uint32_t before = info_of(session).num_tokens;
      const std::string long_text(when == When::in_prompt ? 100 : 3, 'w');
      dsa_run* blocker = nullptr;
      if (when == When::in_queue) {
        control.shut();
        blocker = host.start(other, "blocks");
        control.wait_until_blocked();
      }
      if (when == When::in_prompt || when == When::in_answer) control.shut();
      if (when == When::nan) control.nan_at = 3;
      if (when == When::fault) control.fail_at = control.steps + 4;
      if (when == When::exception) control.throws = true;
      dsa_run* run = host.start(session, long_text);
      if (when == When::in_prompt) control.wait_until_blocked();
      if (when == When::in_answer) {
        control.open();
        dsa_event e = DSA_INIT(dsa_event);
        do CHECK(dsa_run_next(run, DSA_FOREVER, &e) == DSA_OK);
        while (e.type != DSA_EVENT_TEXT && e.type != DSA_EVENT_DONE);
      }
      const bool cancels = int(when) <= int(When::in_answer);
      if (cancels) {
        CHECK(dsa_run_cancel(run, DSA_STOP_ROLLBACK) == DSA_OK);
        CHECK(dsa_run_cancel(run, DSA_STOP_KEEP) == DSA_OK);  // the first one counts
      }
      control.open();
      dsa_event e = DSA_INIT(dsa_event);
      Heard heard;
      while (dsa_run_next(run, DSA_FOREVER, &e) == DSA_OK) heard.take(e);
      CHECK(heard.dones == 1);
      const dsa_result result = result_of(run);
      control.nan_at = -1;
      control.fail_at = -1;
      control.throws = false;
      if (blocker != nullptr) {
        drain(blocker);
        dsa_run_release(blocker);
      }
      if (when == When::in_answer && result.finish == DSA_FINISH_STOP) {
        WARN("the answer was faster than the cancel");
      } else {
        CHECK(result.finish == (cancels ? DSA_FINISH_CANCELLED : DSA_FINISH_ERROR));
        const dsa_status codes[] = {DSA_ERROR_CANCELLED, DSA_ERROR_CANCELLED,    DSA_ERROR_CANCELLED,
                                    DSA_ERROR_NUMERIC,   DSA_ERROR_DEVICE_FAULT, DSA_ERROR_INTERNAL};
        CHECK(result.status == codes[int(when)]);
        CHECK(info_of(session).num_tokens == before);
        CHECK(info_of(session).turns == 1);
        CHECK(dsa_run_cancel(run, DSA_STOP_ROLLBACK) == DSA_OK);  // after the end: nothing
        CHECK(ask(host, session, "three").answer() == expected);
      }
      dsa_run_release(run);
      dsa_session_release(session);
      dsa_session_release(other);
    }
  }

  TEST_CASE("keep, in the queue and in the prompt, leaves the whole prompt in the session") {
    // A session to which the same tokens came by prefill.
    Host reference;
    dsa_session* session = reference.session();
    dsa_prompt* prompt = reference.user(std::string(50, 'k'));
    CHECK(dsa_prompt_message(prompt, DSA_ROLE_ASSISTANT) == DSA_OK);
    uint32_t appended = 0;
    CHECK(dsa_session_prefill(session, prompt, nullptr, nullptr, &appended) == DSA_OK);
    CHECK(appended == 50 + 2 + 2);
    const std::string expected = ask(reference, session, "go on").answer();
    dsa_prompt_release(prompt);
    dsa_session_release(session);

    for (const bool in_queue : {true, false}) {
      Host host({}, [](Control& c) { c.step_sequences = 1; });
      session = host.session();
      dsa_session* other = host.session();
      host.control->shut();
      dsa_run* blocker = in_queue ? host.start(other, "b") : nullptr;
      if (in_queue) host.control->wait_until_blocked();
      dsa_run* run = host.start(session, std::string(50, 'k'));
      if (!in_queue) host.control->wait_until_blocked();
      CHECK(dsa_session_cancel(session, DSA_STOP_KEEP) == DSA_OK);
      host.control->open();
      const Heard heard = drain(run);
      CHECK(heard.finish == DSA_FINISH_CANCELLED);
      CHECK(result_of(run).status == DSA_OK);
      CHECK(info_of(session).num_tokens == 50 + 3 + 1);
      if (blocker != nullptr) drain(blocker), dsa_run_release(blocker);
      CHECK(ask(host, session, "go on").answer() == expected);
      dsa_run_release(run);
      dsa_session_release(session);
      dsa_session_release(other);
    }
  }

  TEST_CASE("a deadline keeps what there is") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::milliseconds(5); });
    host.control->script["q"] = bytes_of(std::string(1000, 'a'));
    dsa_session* session = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.deadline_ms = 60;
    dsa_run* run = host.start(session, "q", &options);
    const Heard heard = drain(run);
    CHECK(heard.finish == DSA_FINISH_DEADLINE);
    CHECK(result_of(run).status == DSA_OK);
    CHECK(heard.answer().size() < 100);
    dsa_run_release(run);
    dsa_session_release(session);
  }

  TEST_CASE("a step that fails for one is repeated for each, and only that one ends") {
    Host host;
    host.control->poison = "poison";
    dsa_session *good = host.session(), *bad = host.session();
    host.control->shut();
    dsa_run* a = host.start(good, "good");
    host.control->wait_until_blocked();
    dsa_run* b = host.start(bad, "poison");
    host.control->open();
    CHECK(drain(a).finish == DSA_FINISH_STOP);
    CHECK(drain(b).finish == DSA_FINISH_ERROR);
    CHECK(result_of(b).status == DSA_ERROR_DEVICE_FAULT);
    dsa_error error = DSA_INIT(dsa_error);
    CHECK(dsa_run_get_error(b, &error) == DSA_OK);
    CHECK(std::string(error.message.ptr) == "poisoned");
    dsa_model_stats stats = DSA_INIT(dsa_model_stats);
    CHECK(dsa_model_get_stats(host.model, &stats) == DSA_OK);
    CHECK(stats.failed == 1);
    CHECK(stats.runs == 2);
    dsa_run_release(a);
    dsa_run_release(b);
    dsa_session_release(good);
    dsa_session_release(bad);
  }

  struct Woken {
    std::atomic<int> calls{0};
    std::atomic<dsa_run*> run{nullptr};
    std::atomic<int> inside{0};
  };

  TEST_CASE("the wake-up comes once for each time it was armed") {
    Host host;
    host.control->script["q"] = bytes_of("abcdef");
    host.control->shut();
    Woken woken;
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.on_ready = [](void* ud) { ++static_cast<Woken*>(ud)->calls; };
    options.on_ready_ud = &woken;
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q", &options);
    host.control->wait_until_blocked();
    CHECK(woken.calls == 1);  // START
    dsa_event e = DSA_INIT(dsa_event);
    CHECK(dsa_run_next(run, 0, &e) == DSA_OK);
    CHECK(e.type == DSA_EVENT_START);
    CHECK(woken.calls == 1);
    host.control->open();  // not armed: nothing more comes, however much happens
    dsa_result result = DSA_INIT(dsa_result);
    while (dsa_run_get_result(run, &result) == DSA_PENDING) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(woken.calls == 1);
    CHECK(drain_rest(run) == 1);
    CHECK(woken.calls == 1);
    dsa_run_release(run);

    host.control->shut();
    run = host.start(session, "q", &options);
    host.control->wait_until_blocked();
    CHECK(woken.calls == 2);
    CHECK(dsa_run_next(run, 0, &e) == DSA_OK);
    CHECK(dsa_run_next(run, 0, &e) == DSA_PENDING);  // armed again
    host.control->open();
    while (woken.calls < 3) std::this_thread::yield();
    drain_rest(run);
    dsa_run_release(run);
    CHECK(woken.calls == 3);
    dsa_session_release(session);
  }

  TEST_CASE("a wake-up may cancel and nothing else; after the last release it is never called") {
    Host host({}, [](Control& c) { c.step_time = std::chrono::microseconds(200); });
    host.control->script["q"] = bytes_of(std::string(500, 'a'));
    struct Ud {
      std::atomic<dsa_run*> run{nullptr};
      dsa_session* session;
      std::atomic<int> next{0}, cancel{0}, calls{0};
    } ud;
    dsa_session* session = ud.session = host.session();
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.on_ready_ud = &ud;
    options.on_ready = [](void* p) {
      Ud& u = *static_cast<Ud*>(p);
      ++u.calls;
      if (u.run == nullptr) return;
      dsa_event e = DSA_INIT(dsa_event);
      u.next = dsa_run_next(u.run, 0, &e);
      u.cancel = dsa_run_cancel(u.run, DSA_STOP_KEEP);
    };
    host.control->shut();
    dsa_run* run = host.start(session, "q", &options);
    host.control->wait_until_blocked();
    dsa_event e = DSA_INIT(dsa_event);
    while (dsa_run_next(run, 0, &e) == DSA_OK) {
    }
    ud.run = run;
    host.control->open();
    dsa_result result = DSA_INIT(dsa_result);
    while (dsa_run_get_result(run, &result) == DSA_PENDING) std::this_thread::yield();
    CHECK(ud.next == DSA_ERROR_REENTRANT);
    CHECK(ud.cancel == DSA_OK);
    CHECK(result.finish == DSA_FINISH_CANCELLED);
    ud.run = nullptr;
    dsa_run_release(run);

    run = host.start(session, "q", &options);
    dsa_run_release(run);
    const int calls = ud.calls;
    dsa_prompt* prompt = host.user("x");
    while (dsa_run_start(session, prompt, nullptr, &run) == DSA_ERROR_BUSY)
      std::this_thread::yield();  // until the step ends
    drain(run);
    CHECK(ud.calls == calls);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("an exception in a wake-up ends the run") {
    Host host;
    dsa_run_options options = DSA_INIT(dsa_run_options);
    options.on_ready = [](void*) { throw 7; };
    dsa_session* session = host.session();
    dsa_run* run = host.start(session, "q", &options);
    dsa_result result = DSA_INIT(dsa_result);  // not reading, or nobody would have to be woken
    while (dsa_run_get_result(run, &result) == DSA_PENDING) std::this_thread::yield();
    CHECK(result.status == DSA_ERROR_CALLBACK);
    CHECK(info_of(session).num_tokens == 0);
    dsa_run_release(run);
    dsa_session_release(session);
  }

  TEST_CASE("busy, reentrant, and what a callback may do") {
    Host host;
    host.control->script["q"] = bytes_of("answer");
    struct Ud {
      Host* host;
      dsa_session *session, *other;
      std::vector<dsa_status> statuses;
      int events = 0, nested = 0;
    } ud{&host, host.session(), host.session(), {}, 0, 0};
    const auto on_event = [](void* p, const dsa_event* e) -> int32_t {
      Ud& u = *static_cast<Ud*>(p);
      ++u.events;
      if (e->type != DSA_EVENT_TEXT || !u.statuses.empty()) return DSA_CONTINUE;
      dsa_prompt* prompt = u.host->user("nested");
      dsa_run* run = nullptr;
      dsa_session_info info = DSA_INIT(dsa_session_info);
      u.statuses = {
          dsa_run_start(u.session, prompt, nullptr, &run),
          dsa_session_ask(u.session, "x", 1, nullptr, nullptr),
          dsa_session_prefill(u.session, prompt, nullptr, nullptr, nullptr),
          dsa_model_close(u.host->model, 0),
          dsa_session_get_info(u.session, &info),
          dsa_session_ask(
              u.other, "x", 1,
              [](void* n, const dsa_event*) -> int32_t { return ++*static_cast<int*>(n), 0; }, &u.nested)};
      dsa_prompt_release(prompt);
      return DSA_CONTINUE;
    };
    CHECK(dsa_session_ask(ud.session, "q", 1, on_event, &ud) == DSA_OK);
    CHECK(ud.statuses == std::vector<dsa_status>{DSA_ERROR_REENTRANT, DSA_ERROR_REENTRANT,
                                                 DSA_ERROR_REENTRANT, DSA_ERROR_REENTRANT, DSA_OK, DSA_OK});
    CHECK(ud.nested > 2);

    host.control->shut();
    dsa_run* run = host.start(ud.session, "q");
    dsa_prompt* prompt = host.user("q");
    dsa_run* second = nullptr;
    CHECK(dsa_run_start(ud.session, prompt, nullptr, &second) == DSA_ERROR_BUSY);
    CHECK(dsa_session_ask(ud.session, "q", 1, nullptr, nullptr) == DSA_ERROR_BUSY);
    CHECK(info_of(ud.session).state == DSA_SESSION_RUNNING);
    dsa_event e = DSA_INIT(dsa_event);
    host.control->wait_until_blocked();
    while (dsa_run_next(run, 0, &e) == DSA_OK) {
    }
    std::atomic<bool> reading{false};
    std::thread reader([&] {
      dsa_event mine = DSA_INIT(dsa_event);
      reading = true;
      CHECK(dsa_run_next(run, DSA_FOREVER, &mine) == DSA_OK);
    });
    while (!reading) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(dsa_run_next(run, 0, &e) == DSA_ERROR_BUSY);
    host.control->open();
    reader.join();
    drain_rest(run);
    dsa_run_release(run);
    dsa_prompt_release(prompt);
    dsa_session_release(ud.session);
    dsa_session_release(ud.other);
  }

  TEST_CASE("answers of the event callback") {
    const std::string untouched = next_answer_after({}, "after");
    for (const int32_t answer :
         {int32_t(DSA_STOP_KEEP), int32_t(DSA_STOP_ROLLBACK), int32_t(-5), int32_t(77)}) {
      Host host;
      host.control->script["q"] = bytes_of("some answer");
      dsa_session* session = host.session();
      dsa_prompt* prompt = host.user("q");
      struct Ud {
        int32_t answer;
        int after = 0;
        bool said = false;
      } ud{answer};
      const auto on_event = [](void* p, const dsa_event* e) -> int32_t {
        Ud& u = *static_cast<Ud*>(p);
        if (u.said) ++u.after;
        if (e->type != DSA_EVENT_TEXT || u.said) return DSA_CONTINUE;
        u.said = true;
        return u.answer;
      };
      dsa_result result = DSA_INIT(dsa_result);
      const dsa_status status = dsa_session_generate(session, prompt, nullptr, on_event, &ud, &result);
      if (answer == DSA_STOP_KEEP) {
        CHECK(status == DSA_OK);
        CHECK((result.finish == DSA_FINISH_CANCELLED || result.finish == DSA_FINISH_STOP));
        CHECK(info_of(session).num_tokens > 4);
        CHECK(ud.after > 0);  // up to DONE
      } else {
        CHECK(status == (answer == DSA_STOP_ROLLBACK ? DSA_ERROR_CANCELLED : DSA_ERROR_CALLBACK));
        CHECK(result.finish == 0);
        CHECK(info_of(session).num_tokens == 0);
        if (answer != DSA_STOP_ROLLBACK) CHECK(ud.after == 0);
        if (answer == -5) CHECK(last_error().native == -5);
        CHECK(ask(host, session, "after").answer() == untouched);
      }
      dsa_prompt_release(prompt);
      dsa_session_release(session);
    }
    Host host;
    dsa_session* session = host.session();
    CHECK(dsa_session_ask(
              session, "q", 1, [](void*, const dsa_event*) -> int32_t { throw std::string("x"); }, nullptr) ==
          DSA_ERROR_CALLBACK);
    CHECK(info_of(session).num_tokens == 0);
    dsa_session_release(session);
  }

  TEST_CASE("prefill: progress, cancel, and the same answer as without it") {
    Host host;
    dsa_session *session = host.session(), *plain = host.session();
    dsa_prompt* system = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &system) == DSA_OK);
    CHECK(dsa_prompt_message(system, DSA_ROLE_SYSTEM) == DSA_OK);
    CHECK(dsa_prompt_text(system, std::string(100, 's').c_str(), DSA_NTS) == DSA_OK);
    std::vector<uint64_t> seen;
    uint32_t appended = 77;
    const auto stop = [](void*, const dsa_progress*) -> int32_t { return DSA_STOP_KEEP; };
    CHECK(dsa_session_prefill(session, system, stop, nullptr, &appended) == DSA_ERROR_CANCELLED);
    CHECK(appended == 77);
    CHECK(info_of(session).num_tokens == 0);
    const auto note = [](void* p, const dsa_progress* e) -> int32_t {
      CHECK(e->total == 102);
      CHECK(e->stage == DSA_STAGE_PREFILL);
      return static_cast<std::vector<uint64_t>*>(p)->push_back(e->done), DSA_CONTINUE;
    };
    CHECK(dsa_session_prefill(session, system, note, &seen, &appended) == DSA_OK);
    CHECK(appended == 102);
    CHECK(seen.size() == 7);
    CHECK(info_of(session).turns == 0);
    const std::string warmed = ask(host, session, "question").answer();
    CHECK(dsa_prompt_message(system, DSA_ROLE_USER) == DSA_OK);
    CHECK(dsa_prompt_text(system, "question", DSA_NTS) == DSA_OK);
    dsa_run* run = nullptr;
    CHECK(dsa_run_start(plain, system, nullptr, &run) == DSA_OK);
    CHECK(drain(run).answer() == warmed);
    dsa_run_release(run);
    dsa_prompt_release(system);
    dsa_session_release(session);
    dsa_session_release(plain);
  }

  TEST_CASE("text calls: tokenize, detokenize, render, measure, chat JSON") {
    Host host;
    dsa_token tokens[8];
    size_t count = 0;
    CHECK(dsa_model_tokenize(host.model, "a<end>", DSA_NTS, 0, tokens, 8, &count) == DSA_OK);
    CHECK(count == 6);
    CHECK(dsa_model_tokenize(host.model, "a<end>", DSA_NTS, DSA_TEXT_CONTROL, tokens, 8, &count) == DSA_OK);
    CHECK(count == 2);
    CHECK(tokens[1] == kEndTurn);
    char text[16];
    CHECK(dsa_model_detokenize(host.model, tokens, 2, 0, text, sizeof(text), &count) == DSA_OK);
    CHECK(std::string(text, count) == "a");
    CHECK(dsa_model_detokenize(host.model, tokens, 2, DSA_TEXT_CONTROL, text, 3, &count) == DSA_PARTIAL);
    CHECK(count == 6);
    CHECK(dsa_model_tokenize(host.model, "abc", 3, 0, nullptr, 0, &count) == DSA_PARTIAL);
    CHECK(count == 3);
    CHECK(dsa_model_tokenize(host.model, "\xff", 1, 0, nullptr, 0, &count) == DSA_ERROR_UTF8);
    CHECK(dsa_model_tokenize(host.model, "a", 1, 2, nullptr, 0, &count) == DSA_ERROR_UNSUPPORTED);
    tokens[0] = -1;
    CHECK(dsa_model_detokenize(host.model, tokens, 1, 0, nullptr, 0, &count) == DSA_ERROR_ARGUMENT);

    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_prompt_create(host.runtime, &prompt) == DSA_OK);
    CHECK(dsa_prompt_add_json(prompt, "[{\"role\":\"user\",\"content\":\"h<end>i\"}]", DSA_NTS) == DSA_OK);
    char rendered[64];
    CHECK(dsa_prompt_render(prompt, host.model, rendered, sizeof(rendered), &count) == DSA_OK);
    CHECK(std::string(rendered, count) == "<user>h<end>i<end><assistant>");
    dsa_prompt_cost cost = DSA_INIT(dsa_prompt_cost);
    CHECK(dsa_prompt_measure(prompt, host.model, nullptr, DSA_FEED_APPEND, &cost) == DSA_OK);
    CHECK(cost.num_tokens == 10);
    CHECK(cost.fits == 1);
    CHECK(dsa_prompt_add_json(prompt, "[{\"role\":", DSA_NTS) == DSA_ERROR_JSON);
    CHECK(dsa_prompt_render(prompt, host.model, nullptr, 0, &count) == DSA_PARTIAL);
    CHECK(count == 29);  // unchanged
    dsa_prompt_release(prompt);
  }
}
