// The operators that are said to be needed are those that steps and pictures call.
#include "model/operators.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "golden/fixture.h"
#include "golden/vision_fixture.h"
#include "io/picture.h"
#include "state/sequence_state.h"
#include "tests/support/timed_backend.h"

namespace dsa::test {
namespace {

// A long prefill, a decode step and, if the model sees, a picture and a step that shows its features; what they called.
OperatorTimes use_everything(const std::string& folder, const std::string& weights) {
  const std::string model_folder = join_path(folder, weights);
  auto json = read_json_file(join_path(model_folder, "config.json"), {.python_numbers = true});
  REQUIRE(json.is_ok());
  const auto config = parse_model_config(json.value(), "config.json", model_folder);
  REQUIRE_MESSAGE(config.is_ok(), config.status().message());
  const auto checkpoint = Checkpoint::open(model_folder);
  REQUIRE(checkpoint.is_ok());
  const auto cpu = create_cpu_backend(2);
  HostClock clock;
  TimedBackend backend(*cpu.value(), clock);
  auto decoder = load_decoder(config.value(), checkpoint.value(), backend, {}, {});
  REQUIRE_MESSAGE(decoder.is_ok(), decoder.status().message());
  auto pool = PagePool::create(decoder.value()->state_layout(), 64);
  REQUIRE(pool.is_ok());

  const auto run = [&](SequenceState& sequence, const std::vector<int32_t>& tokens,
                       std::span<const PlacedRows> placed = {}) {
    StepPlan plan;
    plan.sequences.push_back({&sequence, tokens.data(), int(tokens.size()), true, placed});
    auto pages = pool.value()->reserve(plan);
    REQUIRE(pages.is_ok());
    REQUIRE(decoder.value()->run(plan, *pool.value()).is_ok());
    pages.value().commit();
  };
  SequenceState sequence(*pool.value(), 1024);
  for (int i = 0; i < 3; ++i) run(sequence, std::vector<int32_t>(200, 3 + i));
  run(sequence, {5});

  if (config.value()->vision.layers == 0) return clock.take();
  const auto picture = Picture::from_file(join_path(folder, "image_a.png"));
  REQUIRE(picture.is_ok());
  auto pass = decoder.value()->vision()->begin(std::vector<const Picture*>{&picture.value()});
  REQUIRE(pass.is_ok());
  for (bool done = false; !done;) {
    const auto advanced = pass.value()->advance();
    REQUIRE(advanced.is_ok());
    done = advanced.value();
  }
  const PlacedRows shown[] = {{sequence.length(), 2, pass.value()->features().f32()}};
  run(sequence, {7, 7}, shown);
  return clock.take();
}

void compare(const std::string& family, const std::string& weights) {
  INFO(family, " ", weights);
  const std::string folder = DSA_SOURCE_DIR "/tests/golden/" + family;
  const OperatorTimes called = use_everything(folder, weights);

  const std::string model_folder = join_path(folder, weights);
  const auto json = read_json_file(join_path(model_folder, "config.json"), {.python_numbers = true});
  const auto config = parse_model_config(json.value(), "config.json", model_folder);
  const auto listing = Checkpoint::list(model_folder);
  REQUIRE(listing.is_ok());
  const auto survey = WeightSurvey::of(*config.value(), listing.value());
  REQUIRE(survey.is_ok());
  std::set<std::string> said;
  for (const OperatorNeed& need : operators_of(*config.value(), survey.value())) {
    CHECK(!need.used_by.empty());
    said.emplace(need.name);
  }
  std::string list;
  for (const std::string& op : said)
    if (called.count(op) == 0) list += " not called: " + op;
  for (const auto& [op, time] : called)
    if (said.count(op) == 0) list += " not said: " + op;
  CHECK(list == "");
}

}  // namespace

TEST_SUITE("model/operators") {
  TEST_CASE("kimi_k3: the operators that a step calls") { compare("kimi_k3", "model-mxfp4"); }
  TEST_CASE("kimi_k3: with an indexer, and with plain experts") {
    compare("kimi_k31", "model-mxfp4");
    compare("kimi_k31", "model");
  }
  TEST_CASE("kimi_k3: with pictures") { compare("kimi_k3_vl", "model-mxfp4"); }
  TEST_CASE("kimi_linear") { compare("kimi_linear", "model-mxfp4"); }
  TEST_CASE("deepseek_v32") { compare("deepseek_v32", "model-mxfp4"); }
  TEST_CASE("glm_moe_dsa") { compare("glm_moe_dsa", "model"); }
  TEST_CASE("gpt_oss") {
    compare("gpt_oss", "model-mxfp4");
    compare("gpt_oss", "model");
  }
  TEST_CASE("glm5_next") { compare("glm5_next", "model-mxfp4"); }
  TEST_CASE("glm5_next: with pictures") { compare("glm5_next_vl", "model-mxfp4"); }

  TEST_CASE("every operator has a kernel on every backend of the build that can run here") {
    REQUIRE(!backends_of_build().empty());
    CHECK(backends_of_build()[0].name == "cpu");
    CHECK(backends_of_build()[0].why_not == "");
    for (const BackendKernels& backend : backends_of_build()) {
      if (!backend.why_not.empty()) continue;
      for (const KernelCover& kernel : kernel_cover(backend.variants)) {
        INFO(backend.name, " ", kernel.op);
        CHECK(kernel.variant != "");
      }
    }
  }

  TEST_CASE("cover: the variant that brought the kernel of the best table; none where the table has none") {
    std::vector<KernelVariant> variants = {{"plain", reference_kernels()}, {"better", reference_kernels()}};
    variants[1].table.linear = [](const LinearArgs&, Queue&) {};
    variants[1].table.top_k = nullptr;
    const auto cover = kernel_cover(variants);
    const auto variant_of = [&](const std::string& op) {
      return std::find_if(cover.begin(), cover.end(), [&](const auto& k) { return k.op == op; })->variant;
    };
    CHECK(variant_of("linear") == "better");
    CHECK(variant_of("rms_norm") == "plain");
    CHECK(variant_of("top_k") == "");
    for (const KernelCover& kernel : kernel_cover({})) CHECK(kernel.variant == "");
  }
}

}  // namespace dsa::test
