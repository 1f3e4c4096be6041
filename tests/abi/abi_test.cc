// Numbers that exist twice, and structs of other sizes than ours.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "support/fake_host.h"

using namespace dsa;
using namespace dsa::fake;

TEST_SUITE("abi") {
  TEST_CASE("Code, Fix, Finish and the rest have the numbers of the header") {
#define SAME(code, constant) CHECK(int32_t(code) == int32_t(constant))
    SAME(Code::ok, DSA_OK);
    SAME(Code::pending, DSA_PENDING);
    SAME(Code::end, DSA_END);
    SAME(Code::partial, DSA_PARTIAL);
    SAME(Code::rebuilt, DSA_REBUILT);
    SAME(Code::degraded, DSA_DEGRADED);
    SAME(Code::argument, DSA_ERROR_ARGUMENT);
    SAME(Code::abi, DSA_ERROR_ABI);
    SAME(Code::state, DSA_ERROR_STATE);
    SAME(Code::busy, DSA_ERROR_BUSY);
    SAME(Code::reentrant, DSA_ERROR_REENTRANT);
    SAME(Code::closed, DSA_ERROR_CLOSED);
    SAME(Code::forked, DSA_ERROR_FORKED);
    SAME(Code::unsupported, DSA_ERROR_UNSUPPORTED);
    SAME(Code::out_of_memory, DSA_ERROR_OUT_OF_MEMORY);
    SAME(Code::out_of_device_memory, DSA_ERROR_OUT_OF_DEVICE_MEMORY);
    SAME(Code::over_budget, DSA_ERROR_OVER_BUDGET);
    SAME(Code::disk_full, DSA_ERROR_DISK_FULL);
    SAME(Code::context_full, DSA_ERROR_CONTEXT_FULL);
    SAME(Code::limit, DSA_ERROR_LIMIT);
    SAME(Code::queue_full, DSA_ERROR_QUEUE_FULL);
    SAME(Code::not_found, DSA_ERROR_NOT_FOUND);
    SAME(Code::access, DSA_ERROR_ACCESS);
    SAME(Code::io, DSA_ERROR_IO);
    SAME(Code::corrupt, DSA_ERROR_CORRUPT);
    SAME(Code::hash, DSA_ERROR_HASH);
    SAME(Code::format, DSA_ERROR_FORMAT);
    SAME(Code::model, DSA_ERROR_MODEL);
    SAME(Code::mismatch, DSA_ERROR_MISMATCH);
    SAME(Code::no_device, DSA_ERROR_NO_DEVICE);
    SAME(Code::driver, DSA_ERROR_DRIVER);
    SAME(Code::backend, DSA_ERROR_BACKEND);
    SAME(Code::device_lost, DSA_ERROR_DEVICE_LOST);
    SAME(Code::device_fault, DSA_ERROR_DEVICE_FAULT);
    SAME(Code::numeric, DSA_ERROR_NUMERIC);
    SAME(Code::utf8, DSA_ERROR_UTF8);
    SAME(Code::image, DSA_ERROR_IMAGE);
    SAME(Code::schema, DSA_ERROR_SCHEMA);
    SAME(Code::template_error, DSA_ERROR_TEMPLATE);
    SAME(Code::json, DSA_ERROR_JSON);
    SAME(Code::cancelled, DSA_ERROR_CANCELLED);
    SAME(Code::deadline, DSA_ERROR_DEADLINE);
    SAME(Code::callback, DSA_ERROR_CALLBACK);
    SAME(Code::internal, DSA_ERROR_INTERNAL);
    SAME(Code::worker_lost, DSA_ERROR_WORKER_LOST);
    SAME(Fix::none, DSA_FIX_NONE);
    SAME(Fix::input, DSA_FIX_INPUT);
    SAME(Fix::shorten, DSA_FIX_SHORTEN);
    SAME(Fix::lower_budget, DSA_FIX_LOWER_BUDGET);
    SAME(Fix::free_memory, DSA_FIX_FREE_MEMORY);
    SAME(Fix::update_driver, DSA_FIX_UPDATE_DRIVER);
    SAME(Fix::download_again, DSA_FIX_DOWNLOAD_AGAIN);
    SAME(Fix::resume, DSA_FIX_RESUME);
    SAME(Fix::restart_process, DSA_FIX_RESTART_PROCESS);
    SAME(Fix::retry, DSA_FIX_RETRY);
    SAME(Fix::report, DSA_FIX_REPORT);
    SAME(EventType::start, DSA_EVENT_START);
    SAME(EventType::prefill, DSA_EVENT_PREFILL);
    SAME(EventType::text, DSA_EVENT_TEXT);
    SAME(EventType::notice, DSA_EVENT_NOTICE);
    SAME(EventType::done, DSA_EVENT_DONE);
    SAME(Finish::stop, DSA_FINISH_STOP);
    SAME(Finish::stop_text, DSA_FINISH_STOP_TEXT);
    SAME(Finish::length, DSA_FINISH_LENGTH);
    SAME(Finish::context, DSA_FINISH_CONTEXT);
    SAME(Finish::tool, DSA_FINISH_TOOL);
    SAME(Finish::grammar, DSA_FINISH_GRAMMAR);
    SAME(Finish::cancelled, DSA_FINISH_CANCELLED);
    SAME(Finish::deadline, DSA_FINISH_DEADLINE);
    SAME(Finish::error, DSA_FINISH_ERROR);
    SAME(Cancel::keep, DSA_STOP_KEEP);
    SAME(Cancel::rollback, DSA_STOP_ROLLBACK);
    SAME(Channel::answer, DSA_CHANNEL_ANSWER);
    SAME(Channel::reasoning, DSA_CHANNEL_REASONING);
    SAME(Channel::tool, DSA_CHANNEL_TOOL);
    SAME(Role::system, DSA_ROLE_SYSTEM);
    SAME(Role::user, DSA_ROLE_USER);
    SAME(Role::assistant, DSA_ROLE_ASSISTANT);
    SAME(Role::tool, DSA_ROLE_TOOL);
    SAME(Overflow::error, DSA_OVERFLOW_ERROR);
    SAME(Overflow::finish, DSA_OVERFLOW_FINISH);
    SAME(LogLevel::debug, DSA_LOG_DEBUG);
#undef SAME
  }

  TEST_CASE("input structs: smaller, larger with a zero tail, larger with more, garbage") {
    dsa_runtime* runtime = nullptr;
    const auto create = [&](uint32_t size, size_t real, unsigned char tail) {
      std::vector<unsigned char> bytes(real, 0);
      if (real > sizeof(dsa_runtime_options)) bytes[real - 1] = tail;
      std::memcpy(bytes.data(), &size, sizeof(size));
      runtime = nullptr;
      const dsa_status status =
          dsa_runtime_create(reinterpret_cast<const dsa_runtime_options*>(bytes.data()), &runtime);
      CHECK((runtime != nullptr) == (status == DSA_OK));
      dsa_runtime_release(runtime);
      return status;
    };
    const uint32_t ours = sizeof(dsa_runtime_options);
    CHECK(create(ours, ours, 0) == DSA_OK);
    CHECK(create(16, 16, 0) == DSA_OK);
    CHECK(create(24, 24, 0) == DSA_OK);
    CHECK(create(ours + 8, ours + 8, 0) == DSA_OK);
    CHECK(create(ours + 8, ours + 8, 1) == DSA_ERROR_ABI);
    for (const uint32_t size : {0u, 1u, 15u, 5000u, 0xffffffffu})
      CHECK(create(size, ours, 0) == DSA_ERROR_ABI);

    // What a smaller struct lacks is not read, whatever lies behind it.
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    options.struct_size = 24;
    options.reserved = 5;
    options.max_threads = 99999;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_OK);
    dsa_runtime_release(runtime);
  }

  TEST_CASE("flags, reserved fields and the extension chain") {
    dsa_runtime* runtime = nullptr;
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    options.flags = 1;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_UNSUPPORTED);
    options.flags = 0;
    options.isolation = DSA_ISOLATE_PROCESS;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_UNSUPPORTED);
    options.isolation = 7;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_ARGUMENT);
    options.isolation = 0;
    dsa_ext unknown = {77, sizeof(dsa_ext), nullptr};
    dsa_ext required = {DSA_EXT_REQUIRED | 78, sizeof(dsa_ext), nullptr};
    options.next = &unknown;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_OK);
    dsa_runtime_release(runtime);
    unknown.next = &required;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_UNSUPPORTED);
    unknown.next = &unknown;
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_ARGUMENT);
    unknown = {77, 3, nullptr};
    CHECK(dsa_runtime_create(&options, &runtime) == DSA_ERROR_ABI);

    Host host;
    dsa_session* session = host.session();
    dsa_prompt* prompt = host.user("q");
    dsa_run* run = nullptr;
    const auto start = [&](auto change) {
      dsa_run_options run_options = DSA_INIT(dsa_run_options);
      dsa_sampling sampling = DSA_SAMPLING_INIT;
      run_options.sampling = &sampling;
      change(run_options, sampling);
      const dsa_status status = dsa_run_start(session, prompt, &run_options, &run);
      if (status == DSA_OK) drain(run), dsa_run_release(run);
      return status;
    };
    using O = dsa_run_options;
    using S = dsa_sampling;
    CHECK(start([](O&, S&) {}) == DSA_OK);
    CHECK(start([](O& o, S&) { o.grammar = reinterpret_cast<const dsa_grammar*>(&o); }) ==
          DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.top_logprobs = 1; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.feed = DSA_FEED_FULL_HISTORY; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.feed = 2; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O& o, S&) { o.tools = DSA_TOOLS_REQUIRED; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.speculation = 2; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.speculation = -1; }) == DSA_OK);
    CHECK(start([](O& o, S&) { o.priority = 3; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O& o, S&) { o.priority = -1; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O& o, S&) { o.effort = DSA_EFFORT_NONE; }) == DSA_OK);
    CHECK(start([](O& o, S&) { o.effort = DSA_EFFORT_HIGH; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.max_reasoning_tokens = 5; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O& o, S&) { o.num_stops = 1; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O&, S& s) { s.typical_p = 0.5f; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O&, S& s) { s.dry_strength = 1; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(start([](O&, S& s) { s.temperature = NAN; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O&, S& s) { s.top_p = 1.5f; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O&, S& s) { s.mode = 3; }) == DSA_ERROR_ARGUMENT);
    CHECK(start([](O&, S& s) { s.struct_size = 4; }) == DSA_ERROR_ABI);
    CHECK(start([](O&, S& s) { s.num_bias = 1; }) == DSA_ERROR_ARGUMENT);
    CHECK(info_of(session).state == DSA_SESSION_IDLE);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
  }

  TEST_CASE("output structs: filled up to the smaller size, the tail becomes zero") {
    Host host;
    dsa_session* session = host.session(100);
    std::vector<unsigned char> bytes(sizeof(dsa_session_info) + 16, 0xab);
    auto* info = reinterpret_cast<dsa_session_info*>(bytes.data());
    info->struct_size = uint32_t(sizeof(dsa_session_info) + 16);
    CHECK(dsa_session_get_info(session, info) == DSA_OK);
    CHECK(info->struct_size == sizeof(dsa_session_info) + 16);
    CHECK(info->flags == 0);
    CHECK(info->max_tokens == 100);
    for (size_t i = sizeof(dsa_session_info); i < bytes.size(); ++i) CHECK(bytes[i] == 0);
    std::fill(bytes.begin(), bytes.end(), 0xab);
    info->struct_size = 12;
    CHECK(dsa_session_get_info(session, info) == DSA_OK);
    CHECK(info->num_tokens == 0);
    CHECK(bytes[12] == 0xab);
    for (const uint32_t size : {0u, 7u, 0xababababu}) {
      info->struct_size = size;
      CHECK(dsa_session_get_info(session, info) == DSA_ERROR_ABI);
      CHECK(bytes[8] == 0);
    }
    CHECK(dsa_session_get_info(session, nullptr) == DSA_ERROR_ARGUMENT);
    dsa_session_release(session);
  }

  TEST_CASE("successful calls do not touch the last error, and threads have their own") {
    CHECK(dsa_runtime_create(nullptr, nullptr) == DSA_ERROR_ARGUMENT);
    Host host;
    CHECK(last_error().code == DSA_ERROR_ARGUMENT);
    std::thread([] { CHECK(last_error().code == 0); }).join();
    dsa_error small = DSA_INIT(dsa_error);
    small.struct_size = 3;
    CHECK(dsa_last_error(&small) == DSA_ERROR_ABI);
    CHECK(last_error().code == DSA_ERROR_ARGUMENT);
  }
}
