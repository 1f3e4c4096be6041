#include "bench/model_bench.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/sampler.h"
#include "model/decoder.h"
#include "support/cache_format.h"

namespace dsa::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Bytes that are neither weights nor activations, which a decode step of one sequence reads and writes.
double state_bytes(const StateLayout& layout) { return 2.0 * double(layout.fixed_floats()) * sizeof(float); }
double cache_bytes(const ModelConfig& c, CacheFormat format, int context) {
  const StateLayout layout = state_layout_of(c, format);
  const double latent_row = double(cache_row_bytes(format, layout.latent_dim, layout.latent_coded)),
               value = double(cache_row_bytes(layout.rows_format(), 1, 0));
  double bytes = 0;
  for (const LayerConfig& layer : c.layers) {
    if (layer.attention == AttentionKind::grouped)
      bytes +=
          value * 2 * c.grouped.kv_dim() * (layer.window ? std::min(c.grouped.window, context) : context);
    if (layer.attention != AttentionKind::latent) continue;
    const bool selects = layer.indexer != IndexerKind::none && !c.indexer.selects_all(context);
    bytes += latent_row * (selects ? c.indexer.slots() : context);
    if (selects && layer.indexer == IndexerKind::full)
      bytes += value * c.indexer.dim * context / c.indexer.group;
  }
  return bytes;
}

class Bench {
 public:
  Bench(const BenchMachine& machine, const ModelBenchOptions& options)
      : machine_(machine), options_(options), rates_(machine.ceilings.size()) {}

  Status run() {
    const Json json = shape_config(options_.shape);
    const bool on_host = machine_.backend.storage().is_host();
    DSA_ASSIGN(model_, make_synthetic_model(json, on_host ? InFile::all : InFile::read_by_host));
    synthetic_ = std::make_unique<SyntheticBackend>(
        machine_.backend, model_, machine_.make ? machine_.make : make_on_host(machine_.backend.storage()));
    timed_ = std::make_unique<TimedBackend>(*synthetic_, machine_.clock);
    timed_->watch = Watch::nothing;
    DSA_TRY(load());
    const ModelConfig& c = *model_.config;
    sampler_ = std::make_unique<Sampler>(c.vocab);
    measure_ceilings();
    printf(
        "%s: hidden %d, %zu layers, %d of %d experts a token, %.2f GB of weights, %.2f GB of them in every "
        "step, loaded in %.1f s\n",
        options_.shape.c_str(), c.hidden, c.layers.size(), c.moe.top_k, c.moe.experts,
        double(model_.checkpoint->total_bytes()) * 1e-9, double(model_.step_bytes) * 1e-9, load_seconds_);
    for (const int tokens : options_.prompts) DSA_TRY(prefill(tokens));
    for (const int context : options_.contexts) {
      sequences_.clear();
      for (const int batch : options_.batches) DSA_TRY(decode(batch, context));
    }
    return Status::ok();
  }

 private:
  Status load() {
    const int batch_max = *std::max_element(options_.batches.begin(), options_.batches.end());
    const auto start = Clock::now();
    DSA_ASSIGN(decoder_,
               load_decoder(model_.config, model_.checkpoint, *timed_,
                            {.max_step_tokens = std::max(options_.chunk, batch_max),
                             .max_step_sequences = batch_max,
                             .cache_format = options_.cache_format.value_or(
                                 timed_->storage().is_host() ? CacheFormat::f32 : CacheFormat::bf16)},
                            {}));
    load_seconds_ = seconds_between(start, Clock::now());
    int64_t pages = 0;
    for (const int context : options_.contexts)
      pages = std::max(pages, int64_t(batch_max) * pages_of(room(context)));
    for (const int tokens : options_.prompts) pages = std::max<int64_t>(pages, pages_of(tokens));
    DSA_ASSIGN(pool_, PagePool::create(decoder_->state_layout(), pages, 0, timed_->storage()));
    return Status::ok();
  }
  // Tokens of a sequence with its decode steps behind it: warm, timed, watched, and those of the check.
  int room(int context) const { return context + 2 * options_.steps + 32; }
  static int64_t pages_of(int tokens) { return (tokens + kPageSize - 1) / kPageSize; }

  // Tokens that differ from sequence to sequence and from step to step.
  int32_t next_token() { return int32_t(scramble(++drawn_) % uint64_t(model_.config->vocab)); }

  void measure_ceilings() {
    for (size_t i = 0; i < rates_.size(); ++i)
      rates_[i].push_back(machine_.ceilings[i].bytes_per_second(model_));
  }
  void print_ceilings(double bytes_per_second) {
    for (size_t i = 0; i < rates_.size(); ++i)
      printf("%s %.0f %% of %s at %.2f GB/s", i > 0 ? "," : " =",
             100 * bytes_per_second / median_of(rates_[i]), machine_.ceilings[i].name,
             median_of(rates_[i]) * 1e-9);
    printf("\n");
  }

  // One step; logits are those of every sequence, until the next.
  Result<Tensor> step(const std::vector<SequenceState*>& sequences, const std::vector<int32_t>& tokens,
                      bool wants_logits) {
    StepPlan plan;
    const int count = int(tokens.size() / sequences.size());
    for (size_t i = 0; i < sequences.size(); ++i)
      plan.sequences.push_back({sequences[i], &tokens[i * size_t(count)], count, wants_logits});
    DSA_ASSIGN(Reservation pages, pool_->reserve(plan));
    DSA_ASSIGN(const Tensor logits, decoder_->run(plan, *pool_));
    pages.commit();
    return logits;
  }

  Status append_prompt(SequenceState& sequence, int tokens) {
    for (int done = 0; done < tokens; done += options_.chunk) {
      std::vector<int32_t> chunk(size_t(std::min(options_.chunk, tokens - done)));
      for (int32_t& token : chunk) token = next_token();
      DSA_TRY(step({&sequence}, chunk, done + int(chunk.size()) == tokens).status());
    }
    return Status::ok();
  }

  Status prefill(int tokens) {
    std::vector<double> times;
    Status status;
    double experts = 0;
    for (int round = 0; round < 4; ++round) {
      timed_->watch = round == 0 ? Watch::experts : Watch::nothing;  // the first one also loads kernels
      timed_->experts_used = 0;
      SequenceState sequence(*pool_, tokens);
      const double time = seconds([&] { status = append_prompt(sequence, tokens); });
      DSA_TRY(status);
      if (round == 0)
        experts = double(timed_->experts_used);
      else
        times.push_back(time);
    }
    measure_ceilings();
    const double time = median_of(times);
    double bytes = double(model_.head_bytes) + experts * double(model_.expert_bytes);
    for (int done = 0; done < tokens; done += options_.chunk)
      bytes += double(model_.step_bytes - model_.head_bytes) + state_bytes(decoder_->state_layout()) +
               cache_bytes(*model_.config, decoder_->state_layout().format,
                           std::min(tokens, done + options_.chunk));
    const double operations = 2.0 * double(model_.config->active_parameters) * tokens;
    printf("prefill of %5d: %9.2f ms, %9.1f tokens/s, %.1f TFLOP/s; %.3f GB at %.2f GB/s", tokens, time * 1e3,
           tokens / time, operations / time * 1e-12, bytes * 1e-9, bytes / time * 1e-9);
    print_ceilings(bytes / time);
    if (!options_.operators) return status;
    timed_->watch = Watch::operators;
    SequenceState sequence(*pool_, tokens);
    machine_.clock.take();
    DSA_TRY(append_prompt(sequence, tokens));
    print_operators("in it", machine_.clock.take(), 1);
    timed_->watch = Watch::nothing;
    return Status::ok();
  }

  // A sequence with the pages and the state of another in memory of its own.
  Status copy_sequence(SequenceState& from, SequenceState& to) {
    StepPlan plan;
    const std::vector<int32_t> tokens(size_t(from.length()));
    plan.sequences.push_back({&to, tokens.data(), from.length(), false});
    DSA_ASSIGN(Reservation pages, pool_->reserve(plan));
    const StateLayout& layout = decoder_->state_layout();
    auto* pool = static_cast<char*>(pool_->latents(0, nullptr, 0).pages);  // layer 0 begins its page
    const auto page = [&](int32_t p) { return pool + size_t(p) * layout.page_bytes(); };
    for (size_t i = 0; i < to.pages().size(); ++i)
      timed_->storage().copy(page(to.pages()[i]), page(from.pages()[i]), layout.page_bytes());
    if (layout.fixed_floats() > 0)
      timed_->storage().copy(to.next_recurrent(0), from.recurrent(0), layout.fixed_floats() * sizeof(float));
    pages.commit();
    return Status::ok();
  }

  struct StepTimes {
    std::vector<double> whole, prepare, launch, wait, sample;
  };

  // Decode of one token for each, and the choice of the next.
  Status decode_step(const std::vector<SequenceState*>& sequences, StepTimes* times) {
    std::vector<int32_t> tokens(sequences.size());
    for (int32_t& token : tokens) token = next_token();
    const auto start = Clock::now();
    DSA_ASSIGN(const Tensor logits, step(sequences, tokens, true));
    const auto computed = Clock::now();
    for (size_t i = 0; i < sequences.size(); ++i)
      DSA_TRY(sampler_->sample(logits.f32() + i * size_t(model_.config->vocab), {}, random_, {}).status());
    const auto end = Clock::now();
    if (times == nullptr) return Status::ok();
    times->whole.push_back(seconds_between(start, end));
    times->sample.push_back(seconds_between(computed, end));
    if (!timed_->can_replay()) return Status::ok();
    times->prepare.push_back(seconds_between(start, timed_->replay_begin));
    times->launch.push_back(seconds_between(timed_->replay_begin, timed_->replay_end));
    times->wait.push_back(seconds_between(timed_->replay_end, computed));
    return Status::ok();
  }

  // The time of a step that chooses its tokens, at temperature 1, so that they differ from row to row. `ahead`: each is
  // launched before the one in front of it is read, as the engine does it.
  Result<double> chosen_steps(const std::vector<SequenceState*>& sequences, int steps, bool ahead) {
    std::vector<int32_t> tokens(sequences.size());
    for (int32_t& token : tokens) token = next_token();
    const auto launch = [&](bool from_host) -> Status {
      StepPlan plan;
      std::vector<SampleRow> asked(sequences.size());
      for (size_t i = 0; i < sequences.size(); ++i) {
        plan.sequences.push_back({sequences[i], from_host ? &tokens[i] : nullptr, 1, true});
        asked[i].temperature = 1;
        asked[i].draw = random_.next();
      }
      DSA_ASSIGN(Reservation pages, pool_->reserve(plan));
      DSA_TRY(decoder_->launch(plan, *pool_, asked));
      pages.commit();
      return Status::ok();
    };
    constexpr int kWarm = 3;
    std::vector<double> times;
    if (ahead) DSA_TRY(launch(true));
    auto start = Clock::now();
    for (int i = 0; i < kWarm + steps; ++i) {
      if (i % 4 == 0 && !ahead) measure_ceilings(), start = Clock::now();
      if (!ahead || i + 1 < kWarm + steps) DSA_TRY(launch(!ahead));
      DSA_ASSIGN(const auto chosen, decoder_->collect());
      for (size_t j = 0; j < tokens.size(); ++j) {
        if (chosen[j].token < 0) return error(Code::numeric, "a step without a token");
        tokens[j] = chosen[j].token;
      }
      const auto end = Clock::now();
      if (i >= kWarm) times.push_back(seconds_between(start, end));
      start = end;
    }
    return median_of(times);
  }

  Status decode(int batch, int context) {
    while (int(sequences_.size()) < batch) {
      sequences_.push_back(std::make_unique<SequenceState>(*pool_, room(context)));
      if (sequences_.size() == 1)
        DSA_TRY(append_prompt(*sequences_[0], context));
      else
        DSA_TRY(copy_sequence(*sequences_[0], *sequences_.back()));
    }
    std::vector<SequenceState*> sequences;
    std::vector<Mark> marks;
    for (int i = 0; i < batch; ++i) {
      sequences.push_back(sequences_[size_t(i)].get());
      DSA_ASSIGN(Mark mark, sequences.back()->mark());
      marks.push_back(std::move(mark));
    }
    const auto rewind = [&] {
      for (size_t i = 0; i < marks.size(); ++i) sequences[i]->rewind(marks[i]);
    };

    timed_->watch = Watch::experts;
    timed_->experts_used = 0;
    DSA_TRY(decode_step(sequences, nullptr));
    const double experts = double(timed_->experts_used);
    timed_->watch = Watch::nothing;
    for (int i = 0; i < 4; ++i) DSA_TRY(decode_step(sequences, nullptr));  // records it, warms up
    StepTimes times;
    for (int i = 0; i < options_.steps; ++i) {
      if (i % 4 == 0) measure_ceilings();
      DSA_TRY(decode_step(sequences, &times));
    }
    double time = median_of(times.whole), alternating = 0;
    if (decoder_->samples()) {
      rewind();
      DSA_ASSIGN(alternating, chosen_steps(sequences, options_.steps, false));
      rewind();
      DSA_ASSIGN(time, chosen_steps(sequences, options_.steps, true));
    }
    const double weights = double(model_.step_bytes) + experts * double(model_.expert_bytes);
    const double state = batch * state_bytes(decoder_->state_layout());
    const double cache = batch * cache_bytes(*model_.config, decoder_->state_layout().format, context);
    const double bytes = weights + state + cache;
    printf(
        "decode of %2d at %5d: %8.3f ms, %8.1f tokens/s; %.3f GB (weights %.3f with %.0f experts, state "
        "%.3f, "
        "cache %.3f) at %.2f GB/s",
        batch, context, time * 1e3, batch / time, bytes * 1e-9, weights * 1e-9, experts, state * 1e-9,
        cache * 1e-9, bytes / time * 1e-9);
    print_ceilings(bytes / time);
    if (decoder_->samples())
      printf(
          "  a step ahead of the host; launched when the tokens before are read: %.3f ms, chosen by the host "
          "(greedy): %.3f ms\n",
          alternating * 1e3, median_of(times.whole) * 1e3);
    if (options_.operators) DSA_TRY(watch_steps(sequences, times));
    if (timed_->can_replay()) DSA_TRY(compare_replay(sequences, rewind));
    rewind();
    return timed_->storage().finish();
  }

  Status watch_steps(const std::vector<SequenceState*>& sequences, const StepTimes& times) {
    constexpr int kSteps = 4;
    if (timed_->can_replay()) {
      timed_->watch = Watch::steps;
      machine_.clock.take();
      for (int i = 0; i < kSteps; ++i) DSA_TRY(decode_step(sequences, nullptr));
      const OperatorTime step = machine_.clock.take()[test::kWholeStep];
      if (decoder_->samples()) {
        DSA_TRY(chosen_steps(sequences, kSteps, false).status());
        const OperatorTime chosen = machine_.clock.take()[test::kWholeStep];
        printf("  device with the choice of tokens: %.1f us from first to last kernel\n",
               chosen.seconds / double(chosen.calls) * 1e6);
      }
      printf(
          "  host: %.1f us before the launch, %.1f us launch, %.1f us wait, %.1f us sample; device: %.1f us "
          "from first to last kernel; download of logits alone %.1f us\n",
          median_of(times.prepare) * 1e6, median_of(times.launch) * 1e6, median_of(times.wait) * 1e6,
          median_of(times.sample) * 1e6, step.seconds / double(step.calls) * 1e6,
          download_seconds(sequences.size()) * 1e6);
    }
    timed_->watch = Watch::operators;
    for (int i = 0; i < kSteps; ++i) DSA_TRY(decode_step(sequences, nullptr));
    print_operators("in a step", machine_.clock.take(), kSteps);
    if (decoder_->samples()) {  // of which the step above has none
      DSA_TRY(chosen_steps(sequences, kSteps, false).status());
      const OperatorTimes chosen = machine_.clock.take();
      if (const auto at = chosen.find("sample"); at != chosen.end())
        printf("  sample: %.1f us\n", at->second.seconds / double(at->second.calls) * 1e6);
    }
    if (machine_.clock.kernels() > 0)
      printf("  kernels in a step: %lld\n", (long long)machine_.clock.kernels());
    timed_->watch = Watch::nothing;
    return Status::ok();
  }

  double download_seconds(size_t rows) {
    Storage& storage = timed_->storage();
    const size_t bytes = rows * size_t(model_.config->vocab) * sizeof(float);
    const auto mirror = storage.allocate_mirror(bytes, "a download");
    if (!mirror.is_ok()) return 0;
    std::vector<double> times;
    for (int i = 0; i < 5; ++i)
      times.push_back(seconds([&] {
        storage.download(mirror.value(), 0, bytes);
        (void)storage.finish();
      }));
    return median_of(times);
  }

  // The same steps as they are and replayed: the same bits, and the time of both.
  Status compare_replay(const std::vector<SequenceState*>& sequences, const std::function<void()>& rewind) {
    constexpr int kSteps = 5;
    std::vector<std::vector<float>> logits[2];
    double time[2] = {};
    for (const bool replays : {false, true}) {
      rewind();
      timed_->replays = replays;
      drawn_ = 0;
      for (int i = 0; i < kSteps; ++i) {
        std::vector<int32_t> tokens(sequences.size());
        for (int32_t& token : tokens) token = next_token();
        const auto start = Clock::now();
        DSA_ASSIGN(const Tensor l, step(sequences, tokens, true));
        if (i > 0) time[replays] += seconds_between(start, Clock::now()) / (kSteps - 1);
        logits[replays].emplace_back(l.f32(), l.f32() + l.count());
      }
    }
    size_t different = 0, finite = 0, all = 0;
    for (int i = 0; i < kSteps; ++i)
      for (size_t j = 0; j < logits[0][size_t(i)].size(); ++j) {
        const float a = logits[0][size_t(i)][j], b = logits[1][size_t(i)][j];
        different += f32_to_bits(a) != f32_to_bits(b) ? 1 : 0;
        finite += std::isfinite(a) ? 1 : 0;
        ++all;
      }
    printf("  replay: %.3f ms a step, without %.3f ms; %zu of %zu logits differ\n", time[1] * 1e3,
           time[0] * 1e3, different, all);
    if (finite != all) return error(Code::numeric, all - finite, " logits of ", all, " are not finite");
    if (different > 0) return error(Code::internal, "a replayed step gives other logits");
    return Status::ok();
  }

  const BenchMachine& machine_;
  const ModelBenchOptions& options_;
  std::vector<std::vector<double>> rates_;  // of each ceiling
  SyntheticModel model_;
  std::unique_ptr<SyntheticBackend> synthetic_;
  std::unique_ptr<TimedBackend> timed_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<PagePool> pool_;
  std::vector<std::unique_ptr<SequenceState>> sequences_;  // of one context
  std::unique_ptr<Sampler> sampler_;
  Random random_{1};
  uint64_t drawn_ = 0;
  double load_seconds_ = 0;
};

bool read_numbers(const char* text, std::vector<int>& out) {
  out.clear();
  for (char* end = nullptr; *text != 0; text = *end == ',' ? end + 1 : end) {
    const long n = std::strtol(text, &end, 10);
    if (end == text || (*end != 0 && *end != ',') || n < 1 || n > 1 << 20) return false;
    out.push_back(int(n));
  }
  return true;
}

}  // namespace

bool read_model_options(int argc, char** argv, ModelBenchOptions& options) {
  bool good = true;
  for (int i = 0; i < argc && good; ++i) {
    const std::string name = argv[i];
    if (name == "--operators") {
      options.operators = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    std::vector<int> numbers;
    if (name == "--shape") {
      options.shape = value;
      good = !shape_config(value).is_null();
    } else if (name == "--kv") {
      good = test::parse_cache_format(value, options.cache_format.emplace());
    } else if (!read_numbers(value, numbers)) {
      good = false;
    } else if (name == "--batch" && !numbers.empty()) {
      options.batches = numbers;
    } else if (name == "--context") {
      options.contexts = numbers;
    } else if (name == "--prefill") {
      options.prompts = numbers;
    } else if (name == "--chunk" && numbers.size() == 1) {
      options.chunk = numbers[0];
    } else if (name == "--steps" && numbers.size() == 1) {
      options.steps = numbers[0];
    } else {
      good = false;
    }
  }
  if (good) return true;
  fprintf(stderr,
          "usage: model [--shape NAME] [--batch N,...] [--context N,...] [--prefill N,...] [--chunk N] "
          "[--steps N] [--kv f32|bf16|fp8] [--operators]\n");
  for (const ShapeName& shape : shape_names()) fprintf(stderr, "  %-20s %s\n", shape.name, shape.what);
  return false;
}

Status model_bench(const BenchMachine& machine, const ModelBenchOptions& options) {
  return Bench(machine, options).run();
}

}  // namespace dsa::bench
