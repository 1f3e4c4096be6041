#include "api/run_options.h"

#include "api/structs.h"

namespace dsa::api {
namespace {

constexpr size_t kMaxStops = 64, kMaxStopBytes = 4096, kMaxBias = 1 << 20;

Result<Sampling> read_sampling(const dsa_sampling* sampling, const Engine& engine) {
  if (sampling == nullptr) return engine.default_sampling();
  dsa_sampling s{};
  DSA_TRY(read_in(sampling, "dsa_sampling", s));
  DSA_TRY(check_constant(s.mode, 3, "sampling mode"));
  if (s.mode == DSA_SAMPLE_MODEL) return engine.default_sampling();
  Sampling made;
  if (s.mode == DSA_SAMPLE_GREEDY) return made;
  DSA_TRY(check_reserved(s.typical_p != 1, "typical_p other than 1"));
  DSA_TRY(check_reserved(s.dry_strength != 0, "dry_strength"));
  made.temperature = s.temperature;
  made.top_k = s.top_k;
  made.top_p = s.top_p;
  made.min_p = s.min_p;
  made.repeat_penalty = s.repeat_penalty;
  made.presence_penalty = s.presence_penalty;
  made.frequency_penalty = s.frequency_penalty;
  made.repeat_window = s.repeat_window;
  if (s.num_bias > kMaxBias)
    return error(Code::limit, s.num_bias, " biases, at most ", kMaxBias).with_room(s.num_bias, kMaxBias);
  if (s.num_bias > 0) {
    DSA_TRY(check_pointer(s.bias_tokens, "bias_tokens"));
    DSA_TRY(check_pointer(s.bias_values, "bias_values"));
  }
  for (uint32_t i = 0; i < s.num_bias; ++i) made.bias.emplace_back(s.bias_tokens[i], s.bias_values[i]);
  DSA_TRY(check_sampling(made, engine.vocab_size()));
  return made;
}

Priority priority_of(int32_t priority) {
  if (priority == DSA_PRIORITY_INTERACTIVE) return Priority::interactive;
  return priority == DSA_PRIORITY_BACKGROUND ? Priority::background : Priority::normal;
}

}  // namespace

Result<ParsedRunOptions> read_run_options(const dsa_run_options* options, const Engine& engine) {
  dsa_run_options o{};
  if (options != nullptr) DSA_TRY(read_in(options, "dsa_run_options", o));
  DSA_TRY(check_constant(o.effort, 5, "effort"));
  DSA_TRY(check_constant(o.tools, 3, "tools"));
  DSA_TRY(check_constant(o.feed, 2, "feed"));
  DSA_TRY(check_constant(o.priority, 3, "priority"));
  if (o.speculation < -1)
    return error(Code::argument, "speculation is ", o.speculation, ", expected -1 and above")
        .with_fix(Fix::input);
  DSA_TRY(check_reserved(o.grammar != nullptr, "grammar"));
  DSA_TRY(check_reserved(o.max_reasoning_tokens != 0, "max_reasoning_tokens"));
  DSA_TRY(check_reserved(o.effort > DSA_EFFORT_NONE, "an effort other than MODEL and NONE"));
  DSA_TRY(check_reserved(o.tools == DSA_TOOLS_REQUIRED, "DSA_TOOLS_REQUIRED"));
  DSA_TRY(check_reserved(o.feed != DSA_FEED_APPEND, "DSA_FEED_FULL_HISTORY"));
  DSA_TRY(check_reserved(o.speculation > 0, "speculation"));
  DSA_TRY(check_reserved(o.top_logprobs != 0, "top_logprobs"));
  DSA_TRY(check_reserved(o.reserved != 0, "dsa_run_options.reserved"));

  ParsedRunOptions made;
  DSA_ASSIGN(made.run.sampling, read_sampling(o.sampling, engine));
  if (o.num_stops > kMaxStops)
    return error(Code::limit, o.num_stops, " stop texts, at most ", kMaxStops)
        .with_room(o.num_stops, kMaxStops);
  if (o.num_stops > 0) DSA_TRY(check_pointer(o.stops, "stops"));
  for (size_t i = 0; i < o.num_stops; ++i) {
    DSA_ASSIGN(const std::string_view stop, read_utf8(o.stops[i].ptr, o.stops[i].len, "a stop text"));
    if (stop.empty()) return error(Code::argument, "stop text ", i, " is empty").with_fix(Fix::input);
    if (stop.size() > kMaxStopBytes)
      return error(Code::limit, "stop text ", i, " has ", stop.size(), " bytes, at most ", kMaxStopBytes)
          .with_room(stop.size(), kMaxStopBytes);
    made.run.stops.emplace_back(stop);
  }
  made.run.seed = o.seed != 0 ? o.seed : draw_seed();
  made.run.max_tokens = o.max_tokens;
  made.run.may_call = o.tools != DSA_TOOLS_NONE;
  if (o.deadline_ms != 0) made.run.deadline = Clock::now() + std::chrono::milliseconds(o.deadline_ms);
  made.run.priority = priority_of(o.priority);
  made.run.on_ready = o.on_ready;
  made.run.on_ready_ud = o.on_ready_ud;
  made.thinking = o.effort != DSA_EFFORT_NONE && engine.default_thinking();
  return made;
}

dsa_result result_of(const Run& run) {
  const RunResult& r = run.result();
  dsa_result out{};
  out.status = dsa_status(r.status.code());
  out.finish = int32_t(r.finish);
  out.stop_index = r.stop_index;
  out.tool_calls = uint32_t(run.calls().size());
  out.prompt_tokens = r.prompt_tokens;
  out.image_tokens = r.image_tokens;
  out.output_tokens = r.output_tokens;
  out.reasoning_tokens = r.reasoning_tokens;
  out.seed = run.options().seed;
  out.run_id = run.id();
  return out;
}

dsa_event event_of(const Run& run, const Event& event) {
  dsa_event out{};
  out.run_id = run.id();
  out.type = int32_t(event.type);
  out.channel = int32_t(event.channel);
  out.finish = int32_t(event.finish);
  out.text = view_of(event.text);
  out.index = event.index;
  out.num_tokens = event.num_tokens;
  out.done = event.done;
  out.total = event.total;
  return out;
}

}  // namespace dsa::api
