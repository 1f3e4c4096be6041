// api/session.cc: conversations, and generation on the calling thread.
#include "engine/session.h"

#include "api/handles.h"
#include "api/run_options.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

namespace {

// A run that this thread waits for. It has ended when the waiter goes, however the waiter goes.
class BlockingRun {
 public:
  BlockingRun(const SessionClaim& claim, std::shared_ptr<Run> run) : claim_(claim), run_(std::move(run)) {}
  ~BlockingRun() {
    if (run_->is_done()) return;
    run_->cancel(Cancel::rollback);
    const Event* event;
    while (run_->next(-1, &event) == Run::Next::event) {
    }
  }
  BlockingRun(const BlockingRun&) = delete;
  BlockingRun& operator=(const BlockingRun&) = delete;

  // Calls f(event) for each event up to DONE, or up to an answer that is a failure. DSA_STOP_* and failures
  // stop the run. The run may be ahead of its events: rolling back works even if it has ended by then.
  template <class F>
  Status pull(const F& f) {
    Status stop;
    const Event* event;
    while (run_->next(-1, &event) == Run::Next::event) {
      if (stop.code() == Code::callback) continue;
      int32_t answer;
      try {
        answer = f(*event);
      } catch (...) {
        answer = -1;
      }
      if (answer == DSA_STOP_KEEP) {
        run_->cancel(Cancel::keep);
      } else if (answer == DSA_STOP_ROLLBACK) {
        stop = error(Code::cancelled, "a callback cancelled the run");
        run_->cancel(Cancel::rollback);
      } else if (answer != DSA_CONTINUE) {
        stop = error(Code::callback, "a callback answered ", answer).with_native(answer);
        run_->cancel(Cancel::rollback, stop);
      }
    }
    const Status status = run_->result().status;
    if (!status.is_ok() || stop.is_ok()) return status;
    claim_.session().engine().undo(claim_, *run_);
    return stop;
  }

 private:
  const SessionClaim& claim_;
  const std::shared_ptr<Run> run_;
};

Outcome generate(const std::shared_ptr<Session>& session, const Prompt& prompt, ParsedRunOptions options,
                 dsa_event_fn on_event, void* ud, dsa_result* out) {
  DSA_ASSIGN(const SessionClaim claim, SessionClaim::take(*session));
  options.run.blocking = true;
  DSA_ASSIGN(const std::shared_ptr<Run> run,
             session->engine().start(claim, prompt, options.thinking, std::move(options.run)));
  BlockingRun blocking(claim, run);
  DSA_TRY(blocking.pull([&](const Event& event) {
    if (on_event == nullptr) return int32_t(DSA_CONTINUE);
    dsa_event e = event_of(*run, event);
    e.struct_size = sizeof(e);
    return on_event(ud, &e);
  }));
  if (out != nullptr) write_out(result_of(*run), out);
  return DSA_OK;
}

Status check_stop(int32_t how) {
  if (how == DSA_STOP_KEEP || how == DSA_STOP_ROLLBACK) return Status::ok();
  return error(Code::argument, "how is ", how, ", expected DSA_STOP_KEEP or DSA_STOP_ROLLBACK")
      .with_fix(Fix::input);
}

}  // namespace

dsa_status dsa_session_create(const dsa_model* model, const dsa_session_options* options, dsa_session** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_pointer(out, "out"));
    dsa_session_options o{};
    if (options != nullptr) DSA_TRY(read_in(options, "dsa_session_options", o));
    DSA_TRY(check_constant(o.overflow, 3, "overflow"));
    DSA_TRY(check_constant(o.cache, 2, "cache"));
    if (o.keep_reasoning < -1 || o.keep_reasoning > 1)
      return error(Code::argument, "keep_reasoning is ", o.keep_reasoning, ", expected -1 to 1")
          .with_fix(Fix::input);
    DSA_TRY(check_reserved(o.keep_messages != 0, "keep_messages"));
    DSA_TRY(check_reserved(o.overflow == DSA_OVERFLOW_DROP_TURNS, "DSA_OVERFLOW_DROP_TURNS"));
    DSA_TRY(check_reserved(o.keep_reasoning < 0, "keep_reasoning -1"));
    DSA_TRY(check_reserved(o.cache != DSA_CACHE_SHARED, "DSA_CACHE_PRIVATE"));
    DSA_TRY(check_reserved(o.reserved != 0, "dsa_session_options.reserved"));
    DSA_TRY(check_reserved(o.journal.len != 0, "journal"));
    DSA_ASSIGN(std::shared_ptr<Session> session,
               Engine::create_session(model->impl, o.context_tokens, Overflow(o.overflow)));
    *out = new dsa_session(std::move(session));
    return DSA_OK;
  });
}

void dsa_session_retain(const dsa_session* session) { retain(session); }
void dsa_session_release(const dsa_session* session) {
  release(session, [](Session& s) { s.abandon(); });
}

dsa_status dsa_session_get_info(const dsa_session* session, dsa_session_info* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_out(out, "dsa_session_info"));
    DSA_ASSIGN(const Session::Info info, session->impl->info());
    dsa_session_info made{};
    made.num_tokens = info.num_tokens;
    made.max_tokens = uint32_t(session->impl->max_tokens());
    made.turns = info.turns;
    made.images = info.images;
    made.state = info.running ? DSA_SESSION_RUNNING : DSA_SESSION_IDLE;
    made.tier = info.on_device ? DSA_TIER_DEVICE : DSA_TIER_HOST;
    (info.on_device ? made.device_bytes : made.host_bytes) = info.bytes;
    write_out(made, out);
    return DSA_OK;
  });
}

dsa_status dsa_session_cancel(const dsa_session* session, int32_t how) {
  return guard(Callable::wakeup, [&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_stop(how));
    return session->impl->cancel(Cancel(how));
  });
}

dsa_status dsa_session_prefill(dsa_session* session, const dsa_prompt* prompt, dsa_progress_fn progress,
                               void* ud, uint32_t* num_tokens) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_handle(prompt, "prompt"));
    const std::shared_ptr<Session> owner = session->impl;  // the callback may drop the handle
    Engine& engine = owner->engine();
    RunOptions options;
    options.answer = false;
    options.blocking = true;
    DSA_ASSIGN(const SessionClaim claim, SessionClaim::take(*owner));
    DSA_ASSIGN(const std::shared_ptr<Run> run,
               engine.start(claim, *prompt->impl, engine.default_thinking(), std::move(options)));
    BlockingRun blocking(claim, run);
    DSA_TRY(blocking.pull([&](const Event& event) {
      if (progress == nullptr || event.type != EventType::prefill) return int32_t(DSA_CONTINUE);
      dsa_progress p{};
      p.struct_size = sizeof(p);
      p.done = event.done;
      p.total = event.total;
      p.stage = DSA_STAGE_PREFILL;
      p.usable = 1;
      const int32_t answer = progress(ud, &p);
      return answer == DSA_STOP_KEEP ? int32_t(DSA_STOP_ROLLBACK)
                                     : answer;  // a prompt is kept whole or not at all
    }));
    if (num_tokens != nullptr) *num_tokens = uint32_t(run->work.prompt_end - run->work.first_token);
    return DSA_OK;
  });
}

dsa_status dsa_session_generate(dsa_session* session, const dsa_prompt* prompt,
                                const dsa_run_options* options, dsa_event_fn on_event, void* ud,
                                dsa_result* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    DSA_TRY(check_handle(prompt, "prompt"));
    if (out != nullptr) DSA_TRY(check_out(out, "dsa_result"));
    const std::shared_ptr<Session> owner = session->impl;
    DSA_ASSIGN(ParsedRunOptions parsed, read_run_options(options, owner->engine()));
    if (parsed.run.on_ready != nullptr)
      return error(Code::argument, "on_ready is set for a call that waits").with_fix(Fix::input);
    return generate(owner, *prompt->impl, std::move(parsed), on_event, ud, out);
  });
}

dsa_status dsa_session_ask(dsa_session* session, const char* text, size_t len, dsa_event_fn on_event,
                           void* ud) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(session, "session"));
    const std::shared_ptr<Session> owner = session->impl;
    DSA_ASSIGN(const std::string_view view, read_text(text, len, "text"));
    Prompt prompt;
    prompt.begin_message(Role::user);
    DSA_TRY(prompt.add_text(view, MessagePart::Kind::text));
    DSA_ASSIGN(ParsedRunOptions parsed, read_run_options(nullptr, owner->engine()));
    return generate(owner, prompt, std::move(parsed), on_event, ud, nullptr);
  });
}
