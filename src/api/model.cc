// api/model.cc: loading, closing, tokens.
#include <chrono>

#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

namespace {

// Passes the progress of a load on, at most 20 times a second, and keeps the answer that stopped it.
class LoadReporter {
 public:
  LoadReporter(dsa_progress_fn progress, void* ud) : progress_(progress), ud_(ud) {}

  // False: stop.
  bool report(uint64_t done, uint64_t total) {
    done_ = std::max(done_, done);
    const auto now = std::chrono::steady_clock::now();
    if (progress_ == nullptr || (called_ && done_ < total && now - last_ < std::chrono::milliseconds(50)))
      return true;
    called_ = true;
    last_ = now;
    dsa_progress p{};
    p.struct_size = sizeof(p);
    p.done = std::min(done_, total);
    p.total = total;
    p.stage = DSA_STAGE_WEIGHTS;
    try {
      answer_ = progress_(ud_, &p);
    } catch (...) {
      answer_ = -1;
    }
    return answer_ == DSA_CONTINUE;
  }
  Status status() const {
    if (answer_ == DSA_CONTINUE) return Status::ok();
    if (answer_ == DSA_STOP_KEEP || answer_ == DSA_STOP_ROLLBACK)
      return error(Code::cancelled, "the progress callback cancelled the load");
    return error(Code::callback, "the progress callback answered ", answer_).with_native(answer_);
  }

 private:
  dsa_progress_fn progress_;
  void* ud_;
  uint64_t done_ = 0;
  bool called_ = false;
  std::chrono::steady_clock::time_point last_;
  int32_t answer_ = DSA_CONTINUE;
};

Outcome load(const Package& package, const EngineOptions& options, dsa_progress_fn progress, void* ud,
             dsa_model** out) {
  LoadReporter reporter(progress, ud);
  auto engine =
      package.load(options, [&](uint64_t done, uint64_t total) { return reporter.report(done, total); });
  DSA_TRY(reporter.status());
  if (!engine.is_ok()) return engine.status();
  *out = new dsa_model(std::move(engine).value());
  return DSA_OK;
}

// What a plan sets, if the package is its own and it fits.
Status follow(const dsa_plan& plan, const dsa_package& package, EngineOptions& options) {
  DSA_TRY(check_handle(&plan, "plan"));
  if (plan.package != package.impl)
    return error(Code::argument, "the plan is one of ", plan.package->name(), ", opened as another package")
        .with_fix(Fix::input);
  const Placement& p = plan.impl->placement();
  if (!p.feasible) {
    const bool device = p.on_gpu() && !p.fits_device();
    const uint64_t needed = device ? p.device_bytes() : p.host_bytes;
    const uint64_t available = device ? p.device_limit : p.limit;
    const Code code = plan.has_budget ? Code::over_budget
                      : device        ? Code::out_of_device_memory
                                      : Code::out_of_memory;
    return error(code, "the plan is not feasible: ", needed, " bytes", device ? " of " + p.device : "", ", ",
                 available, " may be used")
        .with_fix(plan.has_budget || device ? Fix::lower_budget : Fix::free_memory)
        .with_room(needed, available);
  }
  options = plan.impl->engine_options();
  return Status::ok();
}

Status check_tokenizer(const dsa_model* model) {
  DSA_TRY(model->impl->check_open());
  if (!model->impl->tokenizer()) return error(Code::unsupported, "the package has no tokenizer");
  return Status::ok();
}

Status check_text_flags(uint32_t flags) {
  return (flags & ~uint32_t(DSA_TEXT_CONTROL)) != 0 ? error(Code::unsupported, "unknown flags ", flags)
                                                    : Status::ok();
}

}  // namespace

dsa_status dsa_model_load(const dsa_package* package, const dsa_plan* plan, const dsa_load_options* options,
                          dsa_progress_fn progress, void* ud, dsa_model** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(package, "package"));
    DSA_TRY(check_pointer(out, "out"));
    dsa_load_options o{};
    if (options != nullptr) DSA_TRY(read_in(options, "dsa_load_options", o));
    DSA_TRY(check_constant(o.ready_when, 2, "ready_when"));
    DSA_TRY(check_constant(o.repro, 2, "repro"));
    DSA_TRY(check_constant(o.allow_fallback, 2, "allow_fallback"));
    DSA_TRY(check_constant(o.verify, 3, "verify"));
    DSA_TRY(check_reserved(o.ready_when != DSA_READY_FIRST_TOKEN, "ready_when"));
    DSA_TRY(check_reserved(o.repro != DSA_REPRO_FAST, "repro"));
    DSA_TRY(check_reserved(o.verify != DSA_VERIFY_HEADERS, "verify"));
    DSA_TRY(check_reserved(o.checkpoint_limit != 0, "checkpoint_limit"));
    DSA_TRY(check_reserved(o.expert_profile.len != 0, "expert_profile"));
    DSA_TRY(check_reserved(o.chat_template.len != 0, "chat_template"));
    EngineOptions made;
    if (plan != nullptr) DSA_TRY(follow(*plan, *package, made));
    if (o.queue_limit != 0) made.queue_limit = int(std::min<uint32_t>(o.queue_limit, 1u << 20));
    return load(*package->impl, made, progress, ud, out);
  });
}

dsa_status dsa_model_load_path(const dsa_runtime* runtime, const char* path, dsa_progress_fn progress,
                               void* ud, dsa_model** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(path, "path"));
    DSA_TRY(check_pointer(out, "out"));
    DSA_ASSIGN(const std::string_view name, read_utf8(path, DSA_NTS, "path"));
    DSA_ASSIGN(const std::shared_ptr<const Package> package, Package::open(runtime->impl, std::string(name)));
    return load(*package, EngineOptions(), progress, ud, out);
  });
}

void dsa_model_retain(const dsa_model* model) { retain(model); }
void dsa_model_release(const dsa_model* model) { release(model); }

dsa_status dsa_model_close(const dsa_model* model, int64_t timeout_ms) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_timeout(timeout_ms));
    DSA_ASSIGN(const bool closed, model->impl->close(timeout_ms));
    return closed ? DSA_OK : DSA_PENDING;
  });
}

dsa_status dsa_model_get_stats(const dsa_model* model, dsa_model_stats* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_out(out, "dsa_model_stats"));
    DSA_ASSIGN(const EngineStats stats, model->impl->stats());
    dsa_model_stats made{};
    made.device_bytes = stats.device_bytes;
    made.host_bytes = stats.host_bytes;
    made.kv_bytes = stats.kv_bytes;
    made.expert_bytes = stats.expert_bytes;
    made.prompt_tokens = stats.prompt_tokens;
    made.output_tokens = stats.output_tokens;
    made.runs = stats.runs;
    made.cancelled = stats.cancelled;
    made.failed = stats.failed;
    made.running = stats.running;
    made.queued = stats.queued;
    made.sessions = stats.sessions;
    made.images_encoded = stats.pictures_encoded;
    made.image_hits = stats.picture_hits;
    made.expert_rows = stats.expert_rows;
    made.expert_rows_fp8 = stats.expert_rows_fp8;
    made.fp8_workspace_bytes = stats.fp8_workspace_bytes;
    made.state = stats.closing ? DSA_MODEL_CLOSED : stats.lost ? DSA_MODEL_LOST : DSA_MODEL_READY;
    write_out(made, out);
    return DSA_OK;
  });
}

dsa_status dsa_model_tokenize(const dsa_model* model, const char* text, size_t len, uint32_t flags,
                              dsa_token* out, size_t cap, size_t* count) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_buffer(out, cap, count));
    DSA_TRY(check_text_flags(flags));
    DSA_TRY(check_tokenizer(model));
    DSA_ASSIGN(const std::string_view view, read_utf8(text, len, "text"));
    const Tokenizer& tokenizer = *model->impl->tokenizer();
    DSA_ASSIGN(const std::vector<TokenId> tokens,
               (flags & DSA_TEXT_CONTROL) != 0 ? tokenizer.encode_markup(view) : tokenizer.encode(view));
    return fill(tokens.data(), tokens.size(), out, cap, count);
  });
}

dsa_status dsa_model_detokenize(const dsa_model* model, const dsa_token* tokens, size_t n, uint32_t flags,
                                char* out, size_t cap, size_t* len) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(model, "model"));
    if (n > 0) DSA_TRY(check_pointer(tokens, "tokens"));
    DSA_TRY(check_buffer(out, cap, len));
    DSA_TRY(check_text_flags(flags));
    DSA_TRY(check_tokenizer(model));
    const Tokenizer& tokenizer = *model->impl->tokenizer();
    std::string bytes;
    for (size_t i = 0; i < n; ++i) {
      if (tokens[i] < 0 || tokens[i] >= model->impl->vocab_size())
        return error(Code::argument, "token ", tokens[i], " at ", i, ", expected 0 to ",
                     model->impl->vocab_size() - 1)
            .with_fix(Fix::input)
            .with_position(i);
      if (tokens[i] >= tokenizer.vocab_size()) continue;  // the model has ids that stand for nothing
      if (!tokenizer.is_control(tokens[i]))
        bytes += tokenizer.bytes(tokens[i]);
      else if ((flags & DSA_TEXT_CONTROL) != 0)
        bytes += tokenizer.control_name(tokens[i]);
    }
    return fill(bytes.data(), bytes.size(), out, cap, len);
  });
}
