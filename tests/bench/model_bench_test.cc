// The bench of models itself: its weights are the same wherever they are made, and it runs on any backend.
#include "bench/model_bench.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "model/decoder.h"
#include "support/guarded_backend.h"
#include "support/values.h"

namespace dsa::bench {
namespace {

test::Values logits_on(Backend& backend, const SyntheticModel& model) {
  auto decoder = load_decoder(model.config, model.checkpoint, backend, {.route = Route::exact}, {});
  REQUIRE_MESSAGE(decoder.is_ok(), decoder.status().message());
  const auto pool = PagePool::create(decoder.value()->state_layout(), 4, 0, backend.storage()).value();
  SequenceState sequence(*pool, 64);
  const std::vector<int32_t> tokens = {3, 141, 59, 26, 5, 35, 89, 79};
  StepPlan plan;
  plan.sequences.push_back({&sequence, tokens.data(), int(tokens.size()), true});
  auto pages = pool->reserve(plan);
  REQUIRE(pages.is_ok());
  const auto logits = decoder.value()->run(plan, *pool);
  REQUIRE_MESSAGE(logits.is_ok(), logits.status().message());
  return {logits.value().f32(), logits.value().f32() + logits.value().count()};
}

SyntheticModel model_of(const Json& config, InFile in_file) {
  auto model = make_synthetic_model(config, in_file);
  REQUIRE_MESSAGE(model.is_ok(), model.status().message());
  return std::move(model).value();
}

}  // namespace

TEST_SUITE("bench/model_bench") {
  TEST_CASE("weights made where they are needed are those of the file") {
    const Json config = shape_config("tiny");
    const SyntheticModel whole = model_of(config, InFile::all),
                         empty = model_of(config, InFile::read_by_host);
    const auto cpu = create_cpu_backend(1).value();
    const test::Values logits = logits_on(*cpu, whole);
    CHECK(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }));

    test::GuardedBackend guarded;
    int64_t made = 0;
    const MakeWeights on_host = make_on_host(guarded.storage());
    SyntheticBackend synthetic(guarded, empty,
                               [&](const FillRule& rule, uint64_t begin, void* to, uint64_t bytes) {
                                 ++made;
                                 return on_host(rule, begin, to, bytes);
                               });
    CHECK(test::same_bits(logits_on(synthetic, empty), logits));
    CHECK(made > 0);
    CHECK_FALSE(test::same_bits(logits_on(guarded, empty), logits));  // the file alone does not have them
  }

  TEST_CASE("pieces of a tensor are what it is as a whole") {
    const FillRule rule{Fill::normal_bf16, 0.5f, 0, 7};
    std::vector<uint8_t> whole(1000), pieces(1000);
    fill_synthetic(rule, 0, whole.data(), whole.size());
    for (size_t at = 0; at < pieces.size(); at += 37)
      fill_synthetic(rule, at, pieces.data() + at, std::min<size_t>(37, pieces.size() - at));
    CHECK(whole == pieces);
  }

  TEST_CASE("normal values have the size that was asked for") {
    std::vector<float> values(1 << 16);
    fill_synthetic({Fill::normal_f32, 0.25f, 0, 3}, 0, values.data(), values.size() * sizeof(float));
    double sum = 0, squares = 0;
    for (const float v : values) sum += v, squares += double(v) * v;
    CHECK(std::abs(sum / double(values.size())) < 0.005);
    CHECK(std::sqrt(squares / double(values.size())) == doctest::Approx(0.25).epsilon(0.02));
  }

  TEST_CASE("every named shape is a model that a load would take") {
    for (const ShapeName& shape : shape_names()) {
      INFO(shape.name);
      const SyntheticModel model = model_of(shape_config(shape.name), InFile::read_by_host);
      CHECK(model.config->quantization.mxfp4);
      const auto size = measure_model(*model.config, *model.checkpoint, {});
      REQUIRE_MESSAGE(size.is_ok(), size.status().message());
      CHECK(double(size.value().weights) ==
            doctest::Approx(double(model.checkpoint->total_bytes())).epsilon(0.02));
    }
    const auto whole = parse_model_config(shape_config("kimi-linear-48b"), "config", "").value();
    CHECK(double(whole->parameters) == doctest::Approx(49.1e9).epsilon(0.02));
  }

  TEST_CASE("the FP8 workspace does not grow with the layers, but for what a layer notes of its rows") {
    const auto bytes_of = [](const char* shape, int& layers, uint64_t& weights) {
      const SyntheticModel model = model_of(shape_config(shape), InFile::read_by_host);
      layers = int(model.config->layers.size());
      ModelOptions options;
      options.fp8_rows = 256;
      const ModelSize size = measure_model(*model.config, *model.checkpoint, options).value();
      weights = size.weights;
      return size.fp8_workspace;
    };
    int few = 0, many = 0;
    uint64_t few_weights = 0, many_weights = 0;
    const uint64_t small = bytes_of("kimi-linear-slice", few, few_weights);
    const uint64_t large = bytes_of("kimi-linear-48b", many, many_weights);
    CHECK(many > few);
    CHECK(small > ModelOptions().fp8_workspace_bytes);
    CHECK(double(large - small) < 0.01 * double(many_weights - few_weights));
    CHECK(large < 2 * small);
  }

  TEST_CASE("the bench runs on the CPU, and on a device with replayed steps") {
    const ModelBenchOptions options{.shape = "tiny",
                                    .batches = {1, 3},
                                    .contexts = {40},
                                    .prompts = {20},
                                    .chunk = 16,
                                    .steps = 3,
                                    .operators = true};
    HostClock clock;
    const auto cpu = create_cpu_backend(1).value();
    const Status on_cpu = model_bench({*cpu, clock, {}, {}}, options);
    CHECK_MESSAGE(on_cpu.is_ok(), on_cpu.message());
    test::GuardedBackend guarded;
    const Status on_device = model_bench({guarded, clock, {}, {}}, options);
    CHECK_MESSAGE(on_device.is_ok(), on_device.message());
    CHECK(guarded.replayed > 0);
  }
}

}  // namespace dsa::bench
