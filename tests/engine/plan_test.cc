#include <doctest/doctest.h>

#include <string>

#include "dsa_sdk.h"
#include "tests/support/temp_folder.h"

using namespace dsa::test;

namespace {

const std::string kFolder = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";

// A runtime that looks for device modules in a folder of the test, and a package.
struct Opened {
  dsa_runtime* runtime = nullptr;
  dsa_package* package = nullptr;

  explicit Opened(const std::string& module_dir, const std::string& path = kFolder) {
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    options.module_dir = {module_dir.data(), module_dir.size()};
    REQUIRE(dsa_runtime_create(&options, &runtime) == DSA_OK);
    dsa_source source = DSA_INIT(dsa_source);
    source.path = {path.data(), path.size()};
    REQUIRE(dsa_package_open(runtime, &source, &package) == DSA_OK);
  }
  ~Opened() {
    dsa_package_release(package);
    dsa_runtime_release(runtime);
  }

  dsa_status plan(const char* device, uint32_t context, dsa_plan** out) const {
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    const std::string id = device != nullptr ? device : "";
    const dsa_str ids[] = {{id.data(), id.size()}};
    request.device_ids = device != nullptr ? ids : nullptr;
    request.num_device_ids = device != nullptr ? 1 : 0;
    request.context_tokens = context;
    return dsa_plan_create(package, &request, out);
  }
};

std::string last_message() {
  dsa_error e = DSA_INIT(dsa_error);
  dsa_last_error(&e);
  return std::string(e.message.ptr, e.message.len);
}

}  // namespace

TEST_SUITE("engine/plan") {
  TEST_CASE("without a device module everything goes to the CPU, and a model loads by that plan") {
    const TempFolder modules;
    const Opened opened(modules.path());
    size_t devices = 0;
    CHECK(dsa_runtime_count_devices(opened.runtime, &devices) == DSA_OK);
    CHECK(devices == 1);
    for (const char* device : {static_cast<const char*>(nullptr), "cpu", "cpu:0"}) {
      dsa_plan* plan = nullptr;
      REQUIRE(opened.plan(device, 512, &plan) == DSA_OK);
      dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
      REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
      CHECK(summary.feasible == 1);
      CHECK(summary.context_tokens == 512);
      CHECK(summary.sessions == 1);
      CHECK(summary.device_bytes == 0);
      CHECK(summary.host_bytes > 0);
      CHECK(summary.experts_on_host == 1);
      dsa_str json = {};
      REQUIRE(dsa_plan_explain(plan, &json) == DSA_OK);
      CHECK(std::string(json.ptr, json.len).find("\"device\":\"cpu:0\"") != std::string::npos);
      dsa_model* model = nullptr;
      REQUIRE(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_OK);
      dsa_plan_release(plan);
      dsa_session* session = nullptr;
      REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
      dsa_session_info info = DSA_INIT(dsa_session_info);
      CHECK(dsa_session_get_info(session, &info) == DSA_OK);
      CHECK(info.max_tokens == 512);
      dsa_session_release(session);
      dsa_model_release(model);
    }
  }

  TEST_CASE(
      "GPU-02 a device that is not there or cannot be used is refused with its reason, never replaced") {
    const TempFolder modules;
    dsa_plan* plan = nullptr;
    {
      const Opened opened(modules.path());
      CHECK(opened.plan("cuda", 512, &plan) == DSA_ERROR_NO_DEVICE);
      CHECK(opened.plan("cuda:GPU-1", 512, &plan) == DSA_ERROR_NO_DEVICE);
      CHECK(last_message().find("cuda:GPU-1") != std::string::npos);
    }
    modules.write("libdsa_sdk_cuda.so", "not a library");
    const Opened opened(modules.path());
    dsa_device_info info = DSA_INIT(dsa_device_info);
    REQUIRE(dsa_runtime_get_device(opened.runtime, 1, &info) == DSA_OK);
    CHECK(info.usable == 0);
    CHECK(info.why_not_code == DSA_ERROR_BACKEND);
    CHECK(info.why_not.len > 0);
    CHECK(dsa_runtime_get_device(opened.runtime, 2, &info) == DSA_ERROR_ARGUMENT);
    CHECK(opened.plan("cuda", 512, &plan) == DSA_ERROR_BACKEND);
    CHECK(plan == nullptr);
    REQUIRE(opened.plan(nullptr, 512, &plan) == DSA_OK);  // nobody named a device: the CPU
    dsa_plan_release(plan);
  }

  TEST_CASE("requests that make no sense are typed errors") {
    const TempFolder modules;
    const Opened opened(modules.path()), other(modules.path());
    dsa_plan* plan = nullptr;
    CHECK(opened.plan("cpu", 1u << 30, &plan) == DSA_ERROR_LIMIT);
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    request.kv_format = DSA_KV_FP8;
    CHECK(dsa_plan_create(opened.package, &request, &plan) == DSA_ERROR_UNSUPPORTED);
    request = DSA_INIT(dsa_plan_request);
    request.sessions = 5000;
    CHECK(dsa_plan_create(opened.package, &request, &plan) == DSA_ERROR_ARGUMENT);
    request = DSA_INIT(dsa_plan_request);
    request.num_device_ids = 1;
    CHECK(dsa_plan_create(opened.package, &request, &plan) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_plan_get(nullptr, nullptr) == DSA_ERROR_ARGUMENT);

    REQUIRE(other.plan("cpu", 512, &plan) == DSA_OK);
    dsa_model* model = nullptr;
    CHECK(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_ERROR_MISMATCH);
    CHECK(model == nullptr);
    dsa_plan_release(plan);
    dsa_plan_release(nullptr);
  }
}
