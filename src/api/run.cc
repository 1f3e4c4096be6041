// api/run.cc: generation that the host pulls.
#include "engine/run.h"

#include "api/handles.h"
#include "api/run_options.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

dsa_status dsa_run_start(dsa_session* session, const dsa_prompt* prompt, const dsa_run_options* options,
                         dsa_run** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_handle(prompt, "prompt"));
    DSA_TRY(check_pointer(out, "out"));
    const std::shared_ptr<Session> owner = session->impl;
    DSA_ASSIGN(ParsedRunOptions parsed, read_run_options(options, owner->engine()));
    DSA_ASSIGN(const SessionClaim claim, SessionClaim::take(*owner));
    // The handle first: once the run is queued nothing may fail.
    struct Storage {
      void* memory = ::operator new(sizeof(dsa_run));
      ~Storage() { ::operator delete(memory); }
    } storage;
    DSA_ASSIGN(std::shared_ptr<Run> run,
               owner->engine().start(claim, *prompt->impl, parsed.thinking, std::move(parsed.run)));
    *out = new (std::exchange(storage.memory, nullptr)) dsa_run(std::move(run));
    return DSA_OK;
  });
}

dsa_status dsa_run_next(dsa_run* run, int64_t timeout_ms, dsa_event* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_out(out, "dsa_event"));
    DSA_TRY(check_timeout(timeout_ms));
    const Event* event = nullptr;
    switch (run->impl->next(timeout_ms, &event)) {
      case Run::Next::event: write_out(event_of(*run->impl, *event), out); return DSA_OK;
      case Run::Next::pending: return DSA_PENDING;
      case Run::Next::end: return DSA_END;
      case Run::Next::busy: break;
    }
    return error(Code::busy, "another thread is inside dsa_run_next of this run").with_fix(Fix::retry);
  });
}

dsa_status dsa_run_cancel(const dsa_run* run, int32_t how) {
  return guard(Callable::wakeup, [&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    if (how != DSA_STOP_KEEP && how != DSA_STOP_ROLLBACK)
      return error(Code::argument, "how is ", how, ", expected DSA_STOP_KEEP or DSA_STOP_ROLLBACK")
          .with_fix(Fix::input);
    run->impl->cancel(Cancel(how));
    return DSA_OK;
  });
}

dsa_status dsa_run_get_result(const dsa_run* run, dsa_result* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_out(out, "dsa_result"));
    if (!run->impl->is_done()) return DSA_PENDING;
    write_out(result_of(*run->impl), out);
    return DSA_OK;
  });
}

dsa_status dsa_run_get_error(const dsa_run* run, dsa_error* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_out(out, "dsa_error"));
    if (!run->impl->is_done()) return DSA_PENDING;
    write_out(error_of(run->impl->result().status.info()), out);
    return DSA_OK;
  });
}

dsa_status dsa_run_get_text(const dsa_run* run, int32_t channel, dsa_str* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_constant(channel, 3, "channel"));
    DSA_TRY(check_pointer(out, "out"));
    if (!run->impl->is_done()) return DSA_PENDING;
    *out = view_of(run->impl->text(Channel(channel)));
    return DSA_OK;
  });
}

dsa_status dsa_run_get_tool_call(const dsa_run* run, uint32_t index, dsa_tool_call* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_out(out, "dsa_tool_call"));
    if (!run->impl->is_done()) return DSA_PENDING;
    const std::vector<ToolCall>& calls = run->impl->calls();
    if (index >= calls.size())
      return error(Code::argument, "call ", index, " of ", calls.size()).with_fix(Fix::input);
    dsa_tool_call made{};
    made.id = view_of(calls[index].id);
    made.name = view_of(calls[index].name);
    made.arguments = view_of(calls[index].arguments);
    made.complete = calls[index].is_complete ? 1 : 0;
    made.valid = calls[index].is_valid ? 1 : 0;
    write_out(made, out);
    return DSA_OK;
  });
}

dsa_status dsa_run_get_stats(const dsa_run* run, dsa_run_stats* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(run, "run"));
    DSA_TRY(check_out(out, "dsa_run_stats"));
    if (!run->impl->is_done()) return DSA_PENDING;
    const RunStats& stats = run->impl->stats();
    dsa_run_stats made{};
    made.queue_ms = stats.queue_ms;
    made.prefill_ms = stats.prefill_ms;
    made.first_token_ms = stats.first_token_ms;
    made.decode_ms = stats.decode_ms;
    made.total_ms = stats.total_ms;
    made.compute_ms = stats.compute_ms;
    made.sample_ms = stats.sample_ms;
    made.bound = stats.queue_ms > stats.total_ms / 2 ? DSA_BOUND_QUEUE : DSA_BOUND_COMPUTE;
    write_out(made, out);
    return DSA_OK;
  });
}

void dsa_run_retain(const dsa_run* run) { retain(run); }
void dsa_run_release(const dsa_run* run) {
  release(run, [](Run& r) {
    r.forget_reader();
    r.cancel(Cancel::keep);
  });
}
