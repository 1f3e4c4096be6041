// The engine and the decoder on a GPU. Exit status 77: there is none that can be used.
//
// DSA_TEST_ROOT names the folder with tests/golden and samples/models if the program runs away from its sources.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/device.h"
#include "dsa_sdk.h"
#include "tests/support/loaded_model.h"

using namespace dsa;
using namespace dsa::test;

namespace {

// Sums in another order: a batch or a chunk may take another kernel than a row alone.
constexpr double kOrder = 2e-3;

std::string root() {
  const char* root = std::getenv("DSA_TEST_ROOT");
  return root != nullptr ? root : DSA_SOURCE_DIR;
}

// A model of tests/golden on the GPU.
struct Device {
  explicit Device(const std::string& name, const ModelOptions& options = {})
      : files(open_model(root() + "/tests/golden/" + name)),
        backend(gpu()),
        model(files, *backend, options) {}

  static std::unique_ptr<Backend> gpu() {
    auto made = create_gpu_backend("cuda", "");
    REQUIRE_MESSAGE(made.is_ok(), made.status().message());
    return std::move(made).value();
  }

  ModelFiles files;
  std::unique_ptr<Backend> backend;
  LoadedModel model;
};

uint64_t free_bytes() {
  const std::vector<DeviceInfo> gpus = list_gpus("");
  return gpus.empty() ? 0 : gpus.front().free_bytes;
}

// A package of the C interface, and loads of it by plan.
struct Opened {
  explicit Opened(const std::string& folder) {
    REQUIRE(dsa_runtime_create(nullptr, &runtime) == DSA_OK);
    dsa_source source = DSA_INIT(dsa_source);
    source.path = {folder.data(), folder.size()};
    REQUIRE(dsa_package_open(runtime, &source, &package) == DSA_OK);
  }
  ~Opened() {
    dsa_package_release(package);
    dsa_runtime_release(runtime);
  }
  dsa_plan* plan(uint32_t context, uint64_t device_bytes = 0) {
    dsa_budget budget = DSA_INIT(dsa_budget);
    budget.device_bytes = device_bytes;
    const dsa_str id = {"cuda", 4};
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    request.budget = &budget;
    request.device_ids = &id;
    request.num_device_ids = 1;
    request.context_tokens = context;
    dsa_plan* plan = nullptr;
    REQUIRE(dsa_plan_create(package, &request, &plan) == DSA_OK);
    return plan;
  }

  dsa_runtime* runtime = nullptr;
  dsa_package* package = nullptr;
};

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("GPU-04 replayed steps give the bits of steps that run as they are") {
    for (const char* name : kModelFolders) {
      INFO(name);
      Device plain(name, {.replay = false}), replayed(name);
      check_decode_steps_are_equal(plain.model, replayed.model);
    }
  }

  TEST_CASE("a batch gives what its sequences give alone, and a prompt in chunks what it gives whole") {
    for (const char* name : kModelFolders) {
      INFO(name);
      Device device(name, {.route = Route::exact});
      Random random(11);
      const int vocab = device.files.config->vocab;
      const std::vector<int32_t> lengths = {3, 90, 41, 64};
      std::vector<std::vector<int32_t>> prompts;
      for (int32_t n : lengths) prompts.push_back(random_tokens(random, n, vocab));
      Values alone, chunked;
      for (const auto& prompt : prompts) {
        SequenceState whole(*device.model.pool, 128), parts(*device.model.pool, 128);
        const Values logits = device.model.step({&whole}, {prompt});
        alone.insert(alone.end(), logits.begin(), logits.end());
        Values last;
        for (size_t at = 0; at < prompt.size(); at += 7)
          last = device.model.step({&parts}, {{prompt.begin() + int64_t(at),
                                               prompt.begin() + int64_t(std::min(prompt.size(), at + 7))}});
        chunked.insert(chunked.end(), last.begin(), last.end());
      }
      SequenceState a(*device.model.pool, 128), b(*device.model.pool, 128), c(*device.model.pool, 128),
          d(*device.model.pool, 128);
      const Values together = device.model.step({&a, &b, &c, &d}, prompts);
      CHECK(relative_error(together, alone) < kOrder);
      CHECK(relative_error(chunked, alone) < kOrder);
    }
  }

  TEST_CASE("experts go through the FP8 workspace, whatever its size") {
    // In a random model rounding now and then tips a router or a selection, and then the row differs as a whole.
    constexpr int kPrompts = 5;
    for (const char* name : {"kimi_k31/model-mxfp4", "deepseek_v32/model-mxfp4", "gpt_oss/model-mxfp4"}) {
      INFO(name);
      Random random(3);
      std::vector<std::vector<Values>> logits;
      ModelOptions fused, expanded, one_expert, serial;
      fused.route = Route::exact;
      expanded.fp8_rows = one_expert.fp8_rows = 1;
      one_expert.fp8_workspace_bytes = 1;
      serial = one_expert, serial.overlap = false;
      std::vector<std::vector<int32_t>> prompts;
      for (const ModelOptions* options : {&fused, &expanded, &one_expert, &serial}) {
        Device device(name, *options);
        while (prompts.size() < size_t(kPrompts))
          prompts.push_back(random_tokens(random, 150, device.files.config->vocab));
        logits.emplace_back();
        for (const std::vector<int32_t>& prompt : prompts) {
          SequenceState state(*device.model.pool, 256);
          logits.back().push_back(device.model.step({&state}, {prompt}));
        }
      }
      std::vector<double> errors;
      for (size_t i = 0; i < prompts.size(); ++i) {
        CHECK(same_bits(logits[1][i], logits[2][i]));
        CHECK(same_bits(logits[1][i], logits[3][i]));
        CHECK_FALSE(same_bits(logits[0][i], logits[1][i]));
        errors.push_back(relative_error(logits[1][i], logits[0][i]));
      }
      std::sort(errors.begin(), errors.end());
      CHECK(errors[size_t(kPrompts) / 2] < 0.25);
    }
  }

  TEST_CASE("the plan says what a load takes, within 2 %, and 200 loads leave nothing behind") {
    Opened opened(root() + "/samples/models/dsa-tiny");
    dsa_plan* plan = opened.plan(4096);
    dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
    REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
    CHECK(summary.feasible == 1);
    uint64_t before = 0;
    for (int i = 0; i < 200; ++i) {
      dsa_model* model = nullptr;
      REQUIRE(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_OK);
      if (i == 0) {
        dsa_model_stats stats = DSA_INIT(dsa_model_stats);
        CHECK(dsa_model_get_stats(model, &stats) == DSA_OK);
        CHECK(double(stats.device_bytes) < 1.02 * double(summary.device_bytes));
        CHECK(double(stats.device_bytes) > 0.98 * double(summary.device_bytes));
      }
      CHECK(dsa_model_close(model, 20000) == DSA_OK);
      dsa_model_release(model);
      if (i == 1) before = free_bytes();
    }
    CHECK(free_bytes() + (uint64_t(16) << 20) > before);
    dsa_plan_release(plan);
  }

  TEST_CASE("what does not fit is said with the amount, by the plan and by the load") {
    Opened opened(root() + "/samples/models/dsa-tiny");
    dsa_plan* plan = opened.plan(4096, uint64_t(64) << 20);
    dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
    REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
    CHECK(summary.feasible == 0);
    dsa_model* model = nullptr;
    CHECK(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_ERROR_OVER_BUDGET);
    dsa_error e = DSA_INIT(dsa_error);
    CHECK(dsa_last_error(&e) == DSA_OK);
    CHECK(e.needed == summary.device_bytes);
    CHECK(e.available == uint64_t(64) << 20);
    dsa_plan_release(plan);
  }

  TEST_CASE("more memory than the device has is a typed error, and the device can be used on") {
    auto backend = create_gpu_backend("cuda", "");
    REQUIRE(backend.is_ok());
    Storage& storage = backend.value()->storage();
    const auto memory = storage.allocate(size_t(1) << 50, "a test");
    REQUIRE_FALSE(memory.is_ok());
    CHECK(memory.status().code() == Code::out_of_device_memory);
    CHECK(memory.status().info().needed == size_t(1) << 50);
    CHECK(memory.status().info().available > 0);
    auto mirror = storage.allocate_mirror(16, "a test");
    REQUIRE(mirror.is_ok());
    storage.upload(mirror.value(), 0, 16);
    CHECK(storage.finish().is_ok());
  }
}

int main(int argc, char** argv) {
  const std::vector<DeviceInfo> gpus = list_gpus("");
  bool usable = false;
  for (const DeviceInfo& gpu : gpus) {
    if (gpu.why_not.is_ok()) usable = true;
    std::printf("%s: %s\n", gpu.id.c_str(),
                gpu.why_not.is_ok() ? gpu.name.c_str() : gpu.why_not.message().c_str());
  }
  if (!usable) return std::puts("no GPU can be used"), 77;
  doctest::Context context(argc, argv);
  return context.run();
}
