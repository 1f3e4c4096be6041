// The engine and the decoder on a GPU. Exit status 77: there is none that can be used.
//
// DSA_TEST_ROOT names the folder with tests/golden and samples/models if the program runs away from its sources.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/device.h"
#include "dsa_sdk.h"
#include "tests/support/device_host.h"
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

// Memory of this process that is in use on the host.
uint64_t resident_bytes() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  REQUIRE(file != nullptr);
  long long pages = 0;
  const int read = std::fscanf(file, "%*s %lld", &pages);
  std::fclose(file);
  REQUIRE(read == 1);
  return uint64_t(pages) * uint64_t(sysconf(_SC_PAGESIZE));
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
  dsa_plan* plan(uint32_t context, uint64_t device_bytes = 0, int32_t kv_format = DSA_KV_MODEL) {
    dsa_budget budget = DSA_INIT(dsa_budget);
    budget.device_bytes = device_bytes;
    const dsa_str id = {"cuda", 4};
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    request.budget = &budget;
    request.device_ids = &id;
    request.num_device_ids = 1;
    request.context_tokens = context;
    request.kv_format = kv_format;
    dsa_plan* plan = nullptr;
    REQUIRE(dsa_plan_create(package, &request, &plan) == DSA_OK);
    return plan;
  }
  // Releases the plan.
  dsa_model* load(dsa_plan* plan) {
    dsa_model* model = nullptr;
    const dsa_status status = dsa_model_load(package, plan, nullptr, nullptr, nullptr, &model);
    dsa_plan_release(plan);
    dsa_error e = DSA_INIT(dsa_error);
    (void)dsa_last_error(&e);
    REQUIRE_MESSAGE(status == DSA_OK, e.message.ptr);
    return model;
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

  TEST_CASE("tokens that steps choose, launched before those in front of them are read, are the host's") {
    for (const char* name : kModelFolders) {
      INFO(name);
      Device device(name);
      check_chosen_tokens(device.model, 80);
    }
  }

  TEST_CASE("conversations with the bundled model are the same, whoever chooses the tokens") {
    const std::string folder = root() + "/samples/models/dsa-tiny";
    std::vector<std::vector<std::string>> heard;
    for (const EngineOptions& options :
         {EngineOptions{.device_sampling = false}, {.run_ahead = false}, EngineOptions{}}) {
      DeviceHost host(folder, Device::gpu(), options);
      heard.push_back(conversations(host, false));
    }
    CHECK(heard[1] == heard[0]);
    CHECK(heard[2] == heard[0]);
  }

  TEST_CASE("a batch gives what its sequences give alone, and a prompt in chunks what it gives whole") {
    for (const char* name : kModelFolders) {
      INFO(name);
      Device device(name, {.route = Route::exact});
      test::Random random(11);
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
      test::Random random(3);
      std::vector<std::vector<Values>> logits;
      ModelOptions fused, expanded, one_expert, serial, direct;
      fused.route = Route::exact;
      expanded.fp8_rows = one_expert.fp8_rows = direct.fp8_rows = 1;
      expanded.expand_rows = one_expert.expand_rows = 0, direct.expand_rows = 1000;
      one_expert.fp8_workspace_bytes = 1;
      serial = one_expert;
      expanded.overlap = one_expert.overlap = true;
      std::vector<std::vector<int32_t>> prompts;
      for (const ModelOptions* options : {&fused, &expanded, &one_expert, &serial, &direct}) {
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
        CHECK(same_bits(logits[1][i], logits[4][i]));
        CHECK_FALSE(same_bits(logits[0][i], logits[1][i]));
        errors.push_back(relative_error(logits[1][i], logits[0][i]));
      }
      std::sort(errors.begin(), errors.end());
      CHECK(errors[size_t(kPrompts) / 2] < 0.25);
    }
  }

  TEST_CASE(
      "a load takes what the plan says, within 2 %: by its own count, and by what the device has left") {
    const std::string tiny = "/samples/models/dsa-tiny";
    for (const auto& [folder, format] :
         {std::pair{std::string("/tests/golden/kimi_k31/model-mxfp4"), DSA_KV_MODEL},
          {tiny, DSA_KV_MODEL},
          {tiny, DSA_KV_FP8}}) {
      INFO(folder, " ", format);
      Opened opened(root() + folder);
      dsa_model_release(opened.load(opened.plan(4096)));  // loads the kernels of the library
      dsa_plan* plan = opened.plan(1 << 19, 0, format);
      dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
      REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
      REQUIRE(summary.feasible == 1);
      const uint64_t before = free_bytes();
      dsa_model* model = opened.load(plan);
      const double taken = double(before) - double(free_bytes());
      dsa_model_stats stats = DSA_INIT(dsa_model_stats);
      CHECK(dsa_model_get_stats(model, &stats) == DSA_OK);
      dsa_model_release(model);
      CHECK(double(stats.device_bytes) == doctest::Approx(double(summary.device_bytes)).epsilon(0.02));
      CHECK(taken == doctest::Approx(double(summary.device_bytes)).epsilon(0.02));
    }
  }

  TEST_CASE("200 loads leave nothing behind, on the device and on the host") {
    Opened opened(root() + "/tests/golden/kimi_k31/model-mxfp4");
    uint64_t device = 0, host = 0;
    for (int i = 0; i < 200; ++i) {
      dsa_model* model = opened.load(opened.plan(4096));
      CHECK(dsa_model_close(model, 20000) == DSA_OK);
      dsa_model_release(model);
      if (i == 20) device = free_bytes(), host = resident_bytes();
    }
    CHECK(free_bytes() >= device);
    CHECK(resident_bytes() < host + (uint64_t(8) << 20));
  }

  TEST_CASE("a context is used to its last page, and then is full") {
    constexpr int kContext = 3 * kPageSize;
    Device device("kimi_k31/model-mxfp4", {.route = Route::exact});
    test::Random random(13);
    const std::vector<int32_t> tokens = random_tokens(random, kContext, device.files.config->vocab);
    SequenceState full(*device.model.pool, kContext), roomy(*device.model.pool, 2 * kContext);
    const Values whole = device.model.step({&roomy}, {tokens});
    Values last = device.model.step({&full}, {{tokens.begin(), tokens.end() - 5}});
    for (int i = kContext - 5; i < kContext; ++i) last = device.model.step({&full}, {{tokens[size_t(i)]}});
    CHECK(relative_error(last, whole) < kOrder);
    StepPlan plan;
    plan.sequences.push_back({&full, tokens.data(), 1, true});
    const auto pages = device.model.pool->reserve(plan);
    REQUIRE_FALSE(pages.is_ok());
    CHECK(pages.status().code() == Code::context_full);

    Opened opened(root() + "/samples/models/dsa-tiny");
    dsa_model* model = opened.load(opened.plan(kContext));
    dsa_session* session = nullptr;
    dsa_prompt* prompt = nullptr;
    REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
    REQUIRE(dsa_prompt_create(opened.runtime, &prompt) == DSA_OK);
    REQUIRE(dsa_prompt_message(prompt, DSA_ROLE_USER) == DSA_OK);
    REQUIRE(dsa_prompt_text(prompt, "The capital of France is Paris.", DSA_NTS) == DSA_OK);
    dsa_status status = DSA_OK;
    uint32_t used = 0, added = 0;
    while ((status = dsa_session_prefill(session, prompt, nullptr, nullptr, &added)) == DSA_OK) used += added;
    CHECK(status == DSA_ERROR_CONTEXT_FULL);
    CHECK(used <= uint32_t(kContext));
    CHECK(used + added > uint32_t(kContext));
    dsa_error e = DSA_INIT(dsa_error);
    CHECK(dsa_last_error(&e) == DSA_OK);
    CHECK(e.needed > e.available);
    dsa_prompt_release(prompt);
    dsa_session_release(session);
    dsa_model_release(model);
  }

  TEST_CASE("a load without room on the device says how much was missing, and succeeds when there is room") {
    Opened opened(root() + "/samples/models/dsa-tiny");
    dsa_plan* plan = opened.plan(1 << 19);  // made when there was room
    dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
    REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
    {
      auto backend = create_gpu_backend("cuda", "");
      REQUIRE(backend.is_ok());
      const uint64_t left = summary.device_bytes / 2;
      const auto others = backend.value()->storage().allocate(free_bytes() - left, "others");
      REQUIRE_MESSAGE(others.is_ok(), others.status().message());
      dsa_model* model = nullptr;
      CHECK(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) ==
            DSA_ERROR_OUT_OF_DEVICE_MEMORY);
      dsa_error e = DSA_INIT(dsa_error);
      CHECK(dsa_last_error(&e) == DSA_OK);
      CHECK(e.needed > e.available);
      CHECK(e.available <= left);
      CHECK(model == nullptr);
    }
    dsa_model_release(opened.load(plan));
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

  TEST_CASE("many writes at once bring every byte to its place, and stop when they are told to") {
    auto backend = create_gpu_backend("cuda", "");
    REQUIRE(backend.is_ok());
    Storage& storage = backend.value()->storage();
    constexpr size_t kSize = (size_t(300) << 20) + 13;
    std::vector<uint32_t> from(kSize / 4 + 1);
    for (size_t i = 0; i < from.size(); ++i) from[i] = uint32_t(i * 2654435761u);
    const char* bytes = reinterpret_cast<const char*>(from.data());
    const auto memory = storage.allocate(kSize, "a test");
    REQUIRE(memory.is_ok());
    char* to = static_cast<char*>(memory.value().get());
    std::vector<Write> writes;
    for (size_t at = 0, n = 1; at < kSize; at += n, n = n * 3 % 9973 * 2311 + 1)
      writes.push_back({to + at, bytes + at, std::min(n, kSize - at)});
    CHECK(writes.size() > 20);
    std::vector<uint64_t> asked;
    REQUIRE(storage.write_all(writes, [&](uint64_t done) { return asked.push_back(done), true; }).is_ok());
    CHECK(asked.front() == 0);
    for (size_t i = 1; i < asked.size(); ++i) CHECK(asked[i] - asked[i - 1] <= Storage::kBytesBetween);
    std::vector<char> read(kSize);
    REQUIRE(storage.read(read.data(), to, kSize).is_ok());
    CHECK(std::equal(read.begin(), read.end(), bytes));

    storage.clear(to, kSize);
    CHECK(storage.write_all(writes, [](uint64_t done) { return done == 0; }).is_ok());
    REQUIRE(storage.read(read.data(), to, kSize).is_ok());
    CHECK(std::all_of(read.end() - 1000, read.end(), [](char c) { return c == 0; }));
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
