// dsa_bench model: decode and prefill of a synthetic model, beside the memory bandwidth that the same threads measure.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "bench/bench.h"
#include "bench/synthetic_model.h"
#include "model/decoder.h"

namespace dsa::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Appends tokens to a sequence in one step; the time it took.
Result<double> timed_step(Decoder& decoder, PagePool& pool, SequenceState& sequence,
                          const std::vector<int32_t>& tokens) {
  const auto start = Clock::now();
  StepPlan plan;
  plan.sequences.push_back({&sequence, tokens.data(), int(tokens.size()), true});
  DSA_ASSIGN(Reservation pages, pool.reserve(plan));
  DSA_TRY(decoder.run(plan, pool).status());
  pages.commit();
  return seconds_since(start);
}

Status run(int threads) {
  constexpr int kPrefill = 512, kDecodeSteps = 24;
  DSA_ASSIGN(const SyntheticModel model, make_synthetic_model({}));
  DSA_ASSIGN(const auto backend, create_cpu_backend(threads));
  DSA_ASSIGN(const auto decoder,
             load_decoder(model.config, model.checkpoint, *backend, {.max_step_tokens = kPrefill}, {}));
  DSA_ASSIGN(const auto pool, PagePool::create(decoder->state_layout(), 256));
  const double gigabytes = double(model.active_weight_bytes) * 1e-9;
  printf("synthetic model: hidden %d, %zu layers, %.2f GB of weights, %.2f GB active per token, %d threads\n",
         model.config->hidden, model.config->layers.size(), double(model.checkpoint->total_bytes()) * 1e-9,
         gigabytes, threads);

  std::vector<int32_t> prompt(kPrefill);
  std::iota(prompt.begin(), prompt.end(), 100);
  const MappedFile& weights = *model.checkpoint->files()[0];
  std::vector<double> bandwidths, weight_reads, decodes, prefills;
  for (int round = 0; round < 3; ++round) {  // side by side, so that a slow moment meets all three
    SequenceState sequence(*pool, 4096);
    DSA_ASSIGN(const double prefill, timed_step(*decoder, *pool, sequence, prompt));
    prefills.push_back(prefill / kPrefill);
    for (int i = 0; i < kDecodeSteps; ++i) {
      if (i % 4 == 0) {
        bandwidths.push_back(read_bandwidth(backend->queue()));
        weight_reads.push_back(read_bandwidth(backend->queue(), weights.data(), weights.size()));
      }
      DSA_ASSIGN(const double step, timed_step(*decoder, *pool, sequence, {int32_t(200 + i)}));
      decodes.push_back(step);
    }
  }
  const double bandwidth = median_of(bandwidths), weight_read = median_of(weight_reads);
  const double decode = median_of(decodes), prefill = median_of(prefills), rate = gigabytes * 1e9 / decode;
  printf("read bandwidth   %8.2f GB/s from a fresh buffer, %.2f GB/s from the mapping of the weights\n",
         bandwidth * 1e-9, weight_read * 1e-9);
  printf(
      "decode           %8.2f ms a token, %.2f tokens/s, weights read at %.2f GB/s = %.0f %% and %.0f %% of "
      "these\n",
      decode * 1e3, 1 / decode, rate * 1e-9, 100 * rate / bandwidth, 100 * rate / weight_read);
  printf("prefill of %d   %8.2f ms a token, %.2f tokens/s = %.1f times decode\n", kPrefill, prefill * 1e3,
         1 / prefill, decode / prefill);

  // One more round through wrapped kernels: where the time goes.
  TimedBackend timed(*backend);
  DSA_ASSIGN(const auto timed_decoder,
             load_decoder(model.config, model.checkpoint, timed, {.max_step_tokens = kPrefill}, {}));
  SequenceState sequence(*pool, 4096);
  DSA_ASSIGN(const double prefill_time, timed_step(*timed_decoder, *pool, sequence, prompt));
  print_operators("prefill", prefill_time);
  operator_times.clear();
  double decode_time = 0;
  for (int i = 0; i < 4; ++i) {
    DSA_ASSIGN(const double step, timed_step(*timed_decoder, *pool, sequence, {int32_t(300 + i)}));
    decode_time += step;
  }
  print_operators("decode ", decode_time);
  return Status::ok();
}

}  // namespace

int model_bench(int threads) {
  const Status status = run(threads);
  if (!status.is_ok()) fprintf(stderr, "dsa_bench: %s\n", status.message().c_str());
  return status.is_ok() ? 0 : 1;
}

}  // namespace dsa::bench
