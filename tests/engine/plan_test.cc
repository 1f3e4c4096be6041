// Plans: of folders and configs that are complete, partial, wrong; where things go; what loading with one does.
#include "engine/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "support/fake_host.h"
#include "support/temp_folder.h"

using namespace dsa;
using namespace dsa::fake;
using dsa::test::TempFolder;

namespace {

const std::string kModel = DSA_SOURCE_DIR "/tests/golden/kimi_k31/model-mxfp4";
const std::string kPublished = DSA_SOURCE_DIR "/tests/model/published/";
constexpr HostMemory kMemory = {uint64_t(64) << 30, uint64_t(48) << 30};

std::shared_ptr<const Plan> plan_of(const std::string& path, const PlanRequest& request = {},
                                    const HostMemory& memory = kMemory) {
  auto plan = Plan::of_path(path, request, {memory});
  REQUIRE_MESSAGE(plan.is_ok(), plan.status().message());
  return plan.value();
}

std::string read_text(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

Json config_json() { return Json::parse(read_text(kModel + "/config.json")); }

// Always needed: everything but experts, contexts and the state of sessions.
uint64_t always(const Json& json) {
  const Json& bytes = json["bytes"];
  return bytes["weights"].get<uint64_t>() - bytes["experts"].get<uint64_t>() +
         bytes["converted"].get<uint64_t>() + bytes["step"].get<uint64_t>();
}

// A package of a runtime that looks for device modules in a folder of the test, which is empty if nothing is said.
struct Opened {
  TempFolder modules;
  dsa_runtime* runtime = nullptr;
  dsa_package* package = nullptr;

  explicit Opened(const std::string& module_text = {}) {
    if (!module_text.empty()) modules.write("libdsa_sdk_cuda.so", module_text);
    dsa_runtime_options options = DSA_INIT(dsa_runtime_options);
    const std::string module_dir = modules.path();
    options.module_dir = {module_dir.data(), module_dir.size()};
    REQUIRE(dsa_runtime_create(&options, &runtime) == DSA_OK);
    dsa_source source = DSA_INIT(dsa_source);
    source.path = {kModel.data(), kModel.size()};
    REQUIRE(dsa_package_open(runtime, &source, &package) == DSA_OK);
  }
  ~Opened() {
    dsa_package_release(package);
    dsa_runtime_release(runtime);
  }
  dsa_status plan(const dsa_plan_request* request, dsa_plan** out) const {
    return dsa_plan_create(package, request, out);
  }
  dsa_status plan_on(const char* device, dsa_plan** out) const {
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    const dsa_str id = {device, strlen(device)};
    request.device_ids = &id;
    request.num_device_ids = 1;
    return plan(&request, out);
  }
};

// A GPU that nobody has, with all kernels.
DeviceInfo some_gpu(const std::string& id, uint64_t free_bytes) {
  DeviceInfo gpu;
  gpu.id = id;
  gpu.name = "a GPU";
  gpu.total_bytes = gpu.free_bytes = free_bytes;
  gpu.backend_bytes = 1000;
  gpu.kernels = {{"cuda", reference_kernels()}};
  return gpu;
}

Result<std::shared_ptr<const Plan>> plan_with(const std::vector<DeviceInfo>& gpus, const PlanRequest& request,
                                              const std::string& path = kModel) {
  return Plan::of_path(path, request, {kMemory, backends_with(gpus), gpus});
}

}  // namespace

TEST_SUITE("engine/plan") {
  TEST_CASE("a folder and its config alone describe the same model") {
    const auto whole = plan_of(kModel), alone = plan_of(kModel + "/config.json");
    CHECK(whole->is_complete());
    CHECK(alone->is_complete());
    const Json a = Json::parse(whole->json()), b = Json::parse(alone->json());
    for (const char* key : {"family", "architecture", "parameters", "operators", "state"})
      CHECK(a[key] == b[key]);
    CHECK(a["tensors"]["source"] == "files");
    CHECK(b["tensors"]["source"] == "config");
    CHECK(a["tensors"]["found"] == a["tensors"]["expected"]);
    CHECK(b["tensors"]["found"] == 0);
    for (const Json& lack : a["missing_operators"]) CHECK(lack["backend"] != "cpu");
  }

  TEST_CASE("the text says the numbers of the JSON") {
    for (const std::string& path :
         {kModel, kPublished + "glm_53_flash.json", kPublished + "gpt_oss_20b.json"}) {
      const auto plan = plan_of(path);
      const Json json = Json::parse(plan->json());
      std::string text = plan->text();
      text.erase(std::remove(text.begin(), text.end(), ','), text.end());
      for (const auto& [key, value] : json["parameters"].items())
        if (value != 0) {
          const size_t at = text.find("\n  " + key);
          REQUIRE(at != std::string::npos);
          CHECK(text.substr(at, text.find('\n', at + 1) - at).find(" " + value.dump()) != std::string::npos);
        }
      for (const char* key : {"weights", "experts", "converted", "step"})
        CHECK(text.find(json["bytes"][key].dump() + " bytes") != std::string::npos);
      CHECK(text.find(concat("operators: ", json["operators"].size(), " needed")) != std::string::npos);
      CHECK(text.find(json["state"]["kv_bytes_per_token"].dump() + " bytes") != std::string::npos);
      CHECK(text.find("tensors: " + json["tensors"]["expected"].dump() + " expected") != std::string::npos);
      for (const Json& op : json["operators"])
        CHECK(text.find("\n  " + op["name"].get<std::string>() + " ") != std::string::npos);
    }
  }

  TEST_CASE("a backend of the build is a column; each operator names its variant there") {
    const Json json = Json::parse(plan_of(kModel)->json());
    REQUIRE(json["backends"].size() == backends_of_build().size());
    for (const BackendKernels& backend : backends_of_build()) {
      const auto cover = kernel_cover(backend.variants);
      for (const Json& op : json["operators"]) {
        const auto kernel =
            std::find_if(cover.begin(), cover.end(), [&](const auto& k) { return op["name"] == k.op; });
        REQUIRE(kernel != cover.end());
        CHECK(op["kernels"][backend.name] == kernel->variant);
      }
    }
  }

  TEST_CASE(
      "a second backend shows up by itself: what it lacks has a reason, and where it cannot run it covers "
      "nothing") {
    std::vector<BackendKernels> backends = backends_with({});
    KernelTable table = backends[0].variants.back().table;
    table.linear = nullptr;
    backends.push_back({"other", "", {{"other-1", table}}});
    backends.push_back({"absent", "there is no such device", {{"absent-1", reference_kernels()}}});
    const auto plan = [&] { return Plan::of_path(kModel, {}, {kMemory, backends}).value(); };
    Json json = Json::parse(plan()->json());
    REQUIRE(json["backends"].size() == 3);
    bool seen = false;
    for (const Json& op : json["operators"]) {
      CHECK(op["covered"] == true);
      CHECK(op["kernels"]["other"] == (op["name"] == "linear" ? "" : "other-1"));
      CHECK(op["kernels"]["absent"] == "absent-1");
      seen = seen || op["name"] == "linear";
    }
    CHECK(seen);
    const auto why = [&](const std::string& op, const std::string& backend) {
      for (const Json& lack : json["missing_operators"])
        if (lack["operator"] == op && lack["backend"] == backend) return lack["why"].get<std::string>();
      return std::string();
    };
    CHECK(why("linear", "other") == "backend 'other' has no kernel for it");
    CHECK(why("rms_norm", "other") == "");
    CHECK(why("rms_norm", "absent") == "there is no such device");
    CHECK(plan()->is_complete());
    CHECK(plan()->text().find("absent cannot run here: there is no such device") != std::string::npos);
    CHECK(plan()->text().find("linear: backend 'other' has no kernel for it") != std::string::npos);

    backends.erase(backends.begin());  // now nothing computes `linear`
    json = Json::parse(plan()->json());
    CHECK_FALSE(plan()->is_complete());
    CHECK(plan()->text().find(", 1 missing") != std::string::npos);
  }

  TEST_CASE("bytes of the layers and of the rest are the weights") {
    for (const std::string& path : {kModel, kPublished + "kimi_k3.json", kPublished + "deepseek_v32.json"}) {
      const Json json = Json::parse(plan_of(path)->json());
      uint64_t sum = json["bytes"]["outside_layers"].get<uint64_t>(), experts = 0;
      for (const Json& layer : json["layers"]) {
        sum += layer["fixed_bytes"].get<uint64_t>() + layer["expert_bytes"].get<uint64_t>();
        experts += layer["expert_bytes"].get<uint64_t>();
        CHECK(layer["device_bytes"].get<uint64_t>() + layer["host_bytes"].get<uint64_t>() +
                  layer["disk_bytes"].get<uint64_t>() ==
              layer["fixed_bytes"].get<uint64_t>() + layer["expert_bytes"].get<uint64_t>());
      }
      CHECK(sum == json["bytes"]["weights"].get<uint64_t>());
      CHECK(experts == json["bytes"]["experts"].get<uint64_t>());
    }
  }

  TEST_CASE("placement: what every token reads, then contexts, then experts; the rest on the disk") {
    const std::string path = kPublished + "gpt_oss_20b.json";
    const Json json = Json::parse(plan_of(path)->json());
    const uint64_t fixed = always(json), experts = json["bytes"]["experts"].get<uint64_t>();
    const uint64_t kv = json["state"]["kv_bytes_per_token"].get<uint64_t>();
    REQUIRE(kv == 24 * 2 * 512 * sizeof(float));

    // Room for everything and 1000 tokens: whole pages of 64, less than the usual context, so some experts leave.
    const uint64_t exact = fixed + experts + 1000 * kv;
    auto plan = plan_of(path, {}, {exact, exact});
    CHECK(plan->placement().context_resident == 960);
    CHECK(plan->placement().context == 32768);
    CHECK(plan->placement().experts_on_host < 1);
    CHECK(plan->placement().host_bytes == exact);
    CHECK(plan->placement().disk_bytes_per_token > 0);
    CHECK(plan->placement().advice.size() == 1);

    plan = plan_of(path, {.context = 960}, {exact, exact});
    CHECK(plan->placement().feasible);
    CHECK(plan->placement().experts_on_host == 1);
    CHECK(plan->placement().disk_bytes_per_token == 0);

    // Two sessions have half the context each, and a ceiling counts like less memory.
    plan = plan_of(path, {.sessions = 2}, {exact, exact});
    CHECK(plan->placement().context_resident == 448);
    plan = plan_of(path, {.host_bytes = exact}, kMemory);
    CHECK(plan->placement().context_resident == 960);
    plan = plan_of(path, {.leave_host_bytes = kMemory.free - exact}, kMemory);
    CHECK(plan->placement().context_resident == 960);

    // A context that does not fit: what would.
    plan = plan_of(path, {.context = 131072}, {exact, fixed + 2000 * kv});
    CHECK_FALSE(plan->placement().feasible);
    CHECK(plan->placement().context_from_disk == 1984);
    CHECK(plan->placement().missing_bytes == (131072 - 2000) * kv);
    REQUIRE(plan->placement().advice.size() == 2);
    CHECK(plan->placement().advice[0].find("context 1984 instead of 131072") != std::string::npos);

    plan = plan_of(path, {}, {1000, 1000});
    CHECK_FALSE(plan->placement().feasible);
    CHECK(plan->placement().context == 0);
    CHECK(Plan::of_path(path, {.context = 131073}, {kMemory}).status().code() == Code::limit);
  }

  TEST_CASE("a GPU: everything on it, with the longest context that fits, to the byte") {
    const uint64_t room = uint64_t(4) << 30;
    DeviceInfo gpu = some_gpu("cuda:GPU-1", room);
    auto plan = plan_with({gpu}, {}).value();
    const Placement* p = &plan->placement();
    CHECK(p->device == "cuda:GPU-1");
    CHECK(p->feasible);
    CHECK(p->context == plan->config().max_context);
    CHECK(p->experts_on_device == 1);
    CHECK(p->experts_on_host == 0);
    CHECK(p->states_per_session == 3);
    CHECK(p->host_bytes > 0);
    const EngineOptions options = plan->engine_options();
    CHECK(options.device == "cuda:GPU-1");
    CHECK(options.default_context == p->context);
    CHECK(options.pool_states == 3);
    CHECK(options.pool_sessions == 1);
    const Json json = Json::parse(plan->json());
    CHECK(json["plan"]["device"] == "cuda:GPU-1");
    CHECK(json["plan"]["device_bytes"] == p->device_bytes());
    uint64_t parts = 0, layers = 0;
    for (const auto& [purpose, bytes] : json["plan"]["device_parts"].items()) {
      parts += bytes.get<uint64_t>();
      CHECK(plan->text().find("on the device, " + purpose) != std::string::npos);
    }
    CHECK(parts == p->device_bytes());
    for (const Json& layer : json["layers"]) {
      CHECK(layer["host_bytes"] == 0);
      CHECK(layer["disk_bytes"] == 0);
      layers += layer["device_bytes"].get<uint64_t>();
    }
    CHECK(layers + json["bytes"]["outside_layers"].get<uint64_t>() == json["bytes"]["weights"]);
    for (const Json& row : json["precision"])
      if (row["what"] == "head") CHECK(row["path"] == "rounded");  // to bf16, where `linear` has many rows

    // A byte less than it needs takes a page; then sessions share what there is.
    CHECK(p->cache_format == CacheFormat::bf16);
    const uint64_t page = state_layout_of(plan->config(), CacheFormat::bf16).page_bytes();
    gpu.free_bytes = p->device_bytes() - 1;
    plan = plan_with({gpu}, {}).value();
    const int64_t most = plan->config().max_context, pages = (most + kPageSize - 1) / kPageSize;
    CHECK(plan->placement().feasible);
    CHECK(plan->placement().context == (pages - 1) * kPageSize);
    gpu.free_bytes = room;
    const uint64_t exact =
        plan_with({gpu}, {.context = 640, .sessions = 2}).value()->placement().device_bytes();
    CHECK(exact ==
          plan_with({gpu}, {.context = 704, .sessions = 2}).value()->placement().device_bytes() - 2 * page);
    for (const PlanRequest& request :
         {PlanRequest{.context = 640, .sessions = 2, .device_bytes = exact - 1},
          PlanRequest{.context = 640, .sessions = 2, .leave_device_bytes = room - exact + 1}}) {
      PlanRequest named = request;
      named.devices = {"cuda"};
      plan = plan_with({gpu}, named).value();
      CHECK_FALSE(plan->placement().feasible);
      CHECK(plan->placement().device_limit == exact - 1);
      CHECK(plan->placement().missing_bytes == 1);
      CHECK(plan->placement().advice[0] == "context 576 instead of 640");
      CHECK(plan_with({gpu}, request).value()->placement().device == "cpu:0");  // nobody named a device
    }
  }

  TEST_CASE("a GPU with a product of FP8: the workspace, its operators and what it rounds") {
    DeviceInfo gpu = some_gpu("cuda:GPU-1", uint64_t(1) << 30);
    const auto plain = plan_with({gpu}, {.context = 64}).value();
    gpu.fp8_rows = 256;
    const auto plan = plan_with({gpu}, {.context = 64}).value();
    CHECK(plain->placement().products == Products::gpu);
    CHECK(plan->placement().products == Products::gpu_fp8);
    CHECK(plan->placement().device_bytes() > plain->placement().device_bytes());
    const auto has = [](const Plan& of, const char* op) {
      return std::any_of(of.operators().begin(), of.operators().end(),
                         [&](const auto& cover) { return cover.need.name == op; });
    };
    for (const char* op :
         {"mxfp4_exponents", "mxfp4_to_fp8", "fp8_pack", "fp8_expert_linear", "mxfp4_expert_linear"}) {
      CHECK(has(*plan, op));
      CHECK_FALSE(has(*plain, op));
    }
    CHECK(plan->json().find("E4M3 where an expert has many rows") != std::string::npos);
    CHECK(plain->json().find("activations rounded to 15 bits in stretches of 256\"") != std::string::npos);
  }

  TEST_CASE("GPU-02 which device: the first that fits, the one that is named, never another in its place") {
    const uint64_t room = uint64_t(1) << 30;
    DeviceInfo broken = some_gpu("cuda:GPU-1", room);
    broken.why_not = error(Code::backend, "no code for it");
    const std::vector<DeviceInfo> gpus = {broken, some_gpu("cuda:GPU-2", 5000), some_gpu("cuda:GPU-3", room)};
    const auto device_of = [&](const PlanRequest& request) {
      const auto plan = plan_with(gpus, request);
      return plan.is_ok() ? plan.value()->placement().device : plan.status().message();
    };
    CHECK(device_of({}) == "cuda:GPU-3");
    CHECK(device_of({.devices = {"cuda"}}) == "cuda:GPU-2");
    CHECK(device_of({.devices = {"cuda:2"}}) == "cuda:GPU-3");
    CHECK(device_of({.devices = {"cuda:GPU-3"}}) == "cuda:GPU-3");
    CHECK(device_of({.devices = {"cpu"}}) == "cpu:0");
    CHECK(device_of({.devices = {"cpu:0"}}) == "cpu:0");
    CHECK(device_of({.devices = {"cuda:0"}}) == "no code for it");
    CHECK(plan_with(gpus, {.devices = {"cuda:3"}}).status().code() == Code::no_device);
    CHECK(plan_with({}, {.devices = {"cuda"}}).status().code() == Code::no_device);
    CHECK(plan_with({broken}, {.devices = {"cuda"}}).status().code() == Code::backend);
    CHECK(plan_with({broken}, {}).value()->placement().device == "cpu:0");
    CHECK(plan_with(gpus, {.devices = {"cuda:1", "cuda:2"}}).status().code() == Code::unsupported);

    // Sizes on a device are those of headers.
    const std::string config = kModel + "/config.json";
    CHECK(plan_with(gpus, {.devices = {"cuda:2"}}, config).status().code() == Code::model);
    CHECK(plan_with(gpus, {}, config).value()->placement().device == "cpu:0");
    CHECK(plan_with(gpus, {}, config).value()->text().find("no GPU is planned") != std::string::npos);
  }

  TEST_CASE("state: KDA layers and open pools for a session, twice; latents, keys and values for a token") {
    const Json k3 = Json::parse(plan_of(kPublished + "kimi_k3.json")->json());
    CHECK(k3["state"]["kv_bytes_per_token"] == 24 * 576 * 4);
    CHECK(k3["state"]["bytes_per_session"] == uint64_t(69) * (96 * 128 * 128 + 3 * 3 * 96 * 128) * 4);
    const Json glm = Json::parse(plan_of(kPublished + "glm_53_flash.json")->json());
    CHECK(glm["state"]["kv_bytes_per_token"] == 11 * (512 + 128 / 4) * 4);
    CHECK(glm["state"]["bytes_per_session"] ==
          uint64_t(34) * (64 * 128 * 128 + 3 * 3 * 64 * 128) * 4 + 11 * 3 * 2 * 128 * 4);
  }

  TEST_CASE("a cache of bf16 takes half of the bytes of a token, and a plan says that it rounds") {
    for (const char* name : {"kimi_k3.json", "glm_53_flash.json", "gpt_oss_20b.json"}) {
      INFO(name);
      const Json f32 = Json::parse(plan_of(kPublished + name)->json());
      const auto plan = plan_of(kPublished + name, {.cache_format = CacheFormat::bf16});
      const Json bf16 = Json::parse(plan->json());
      CHECK(2 * bf16["state"]["kv_bytes_per_token"].get<uint64_t>() ==
            f32["state"]["kv_bytes_per_token"].get<uint64_t>());
      CHECK(bf16["state"]["bytes_per_session"] == f32["state"]["bytes_per_session"]);
      CHECK(plan->engine_options().cache_format == CacheFormat::bf16);
      int rounded = 0;
      for (const Json& row : bf16["precision"])
        if (row["what"] == "latents" || row["what"] == "keys_and_values") {
          CHECK(row["format"] == "BF16");
          rounded += row["path"] == "rounded";
        }
      CHECK(rounded == 1);
    }
  }

  TEST_CASE("a cache of fp8 codes latents alone, and is refused where there are none") {
    const struct {
      const char* name;
      uint64_t bytes_per_token;
    } kCases[] = {
        {"deepseek_v32.json", 61 * (656 + 128 * 2)},  // rotary values and index keys are bf16
        {"glm_53_flash.json", 11 * (528 + 128 / 4 * 2)},
    };
    for (const auto& [name, bytes] : kCases) {
      INFO(name);
      const auto plan = plan_of(kPublished + name, {.cache_format = CacheFormat::fp8});
      const Json json = Json::parse(plan->json());
      CHECK(json["state"]["kv_bytes_per_token"] == bytes);
      CHECK(plan->engine_options().cache_format == CacheFormat::fp8);
      std::string formats;
      for (const Json& row : json["precision"])
        if (row["what"] == "latents" || row["what"] == "index_keys")
          formats += row["format"].get<std::string>() + " " + row["path"].get<std::string>() + " ";
      CHECK(formats == "FP8 rounded BF16 rounded ");
    }
    const auto refused =
        Plan::of_path(kPublished + "gpt_oss_20b.json", {.cache_format = CacheFormat::fp8}, {kMemory});
    CHECK(refused.status().code() == Code::unsupported);
    CHECK(refused.status().message().find("keeps none") != std::string::npos);
  }

  TEST_CASE("precision: each kind of tensor has a path; a format that is not read is refused") {
    const auto path_of = [](const Json& json, const std::string& what, const std::string& format) {
      std::string paths;
      for (const Json& row : json["precision"])
        if (row["what"] == what && row["format"] == format) paths += row["path"].get<std::string>() + " ";
      return paths;
    };
    const Json json = Json::parse(plan_of(kModel)->json());
    CHECK(path_of(json, "routed_experts", "MXFP4") == "rounded ");
    CHECK(path_of(json, "head", "BF16") == "rounded ");
    CHECK(path_of(json, "embedding", "BF16") == "exact ");
    CHECK(path_of(json, "router", "BF16").find("rounded") == std::string::npos);
    const Json v32 = Json::parse(plan_of(kPublished + "deepseek_v32.json")->json());
    CHECK(path_of(v32, "routed_experts", "F8_E4M3") == "exact ");
    CHECK(path_of(v32, "attention", "F8_E4M3").find("rounded") != std::string::npos);  // kv_b_proj
    CHECK(path_of(v32, "index_keys", "F32") == "rounded ");
  }

  TEST_CASE("an index with some of its files: what is missing is named, and the plan is not complete") {
    const TempFolder folder;
    folder.write("config.json", read_text(kModel + "/config.json"));
    const auto listing = Checkpoint::list(kModel);
    REQUIRE(listing.is_ok());
    Json names = Json::object();
    listing.value().headers->for_each([&](std::string_view name, const StoredTensor&) {
      names[std::string(name)] = "model-00001.safetensors";
    });
    names.erase("language_model.lm_head.weight");
    names["language_model.surprise"] = "model-00002.safetensors";
    folder.write("model.safetensors.index.json", Json{{"weight_map", names}}.dump());
    const auto plan = plan_of(folder.path());
    CHECK_FALSE(plan->is_complete());
    const Json json = Json::parse(plan->json());
    CHECK(json["tensors"]["source"] == "index");
    CHECK(json["tensors"]["missing"] == 1);
    CHECK(json["tensors"]["unexpected"] == 1);
    CHECK(json["tensors"]["missing_files"].size() == 2);
    CHECK(json["tensors"]["unexpected_patterns"][0]["pattern"] == "language_model.surprise");
    CHECK(plan->text().find("tensor 'language_model.lm_head.weight' is missing") != std::string::npos);
    CHECK(plan->text().find("language_model.surprise") != std::string::npos);

    folder.write("model.safetensors.index.json", "{\"weight_map\": {}}");
    CHECK(Plan::of_path(folder.path(), {}, {kMemory}).status().code() == Code::model);
  }

  TEST_CASE("a config that is unknown or contradicts itself is refused by key") {
    const TempFolder folder;
    const auto status_of = [&](const Json& json) {
      return Plan::of_path(folder.write("config.json", json.dump()), {}, {kMemory}).status();
    };
    Json json = config_json();
    json["text_config"]["num_key_value_heads"] = 5;
    CHECK(status_of(json).code() == Code::model);
    CHECK(status_of(json).message().find("'num_key_value_heads' is 5, expected") != std::string::npos);
    json = config_json();
    json["text_config"]["attention_sinks"] = 4;
    CHECK(status_of(json).code() == Code::unsupported);
    CHECK(status_of(json).message().find("attention_sinks") != std::string::npos);
    json = config_json();
    json["architectures"] = {"DeepseekV4ForCausalLM"};
    CHECK(status_of(json).code() == Code::unsupported);
    for (const char* block : {"shared 512-wide key and value head", "sliding window", "compressors",
                              "sqrt(softplus)", "learned mixer"}) {
      INFO(block);
      CHECK(status_of(json).message().find(block) != std::string::npos);
    }
    CHECK(status_of(Json::array()).code() == Code::model);
    CHECK(Plan::of_path("/nowhere", {}, {kMemory}).status().code() == Code::not_found);
    CHECK(Plan::of_path("", {}, {kMemory}).status().code() == Code::argument);
  }

  TEST_CASE("dsa_plan: numbers, explanation, and a model that is loaded with it") {
    const Opened opened;
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    request.context_tokens = 300;
    request.sessions = 2;
    const dsa_str cpu = {"cpu:0", 5};
    request.device_ids = &cpu;
    request.num_device_ids = 1;
    dsa_plan* plan = nullptr;
    REQUIRE(opened.plan(&request, &plan) == DSA_OK);
    dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
    REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
    CHECK(summary.feasible == 1);
    CHECK(summary.bound == DSA_BOUND_HOST);
    CHECK(summary.context_tokens == 300);
    CHECK(summary.sessions == 2);
    CHECK(summary.experts_on_host == 1);
    CHECK(summary.device_bytes == 0);
    dsa_str text = {};
    REQUIRE(dsa_plan_explain(plan, &text) == DSA_OK);
    CHECK(text.ptr[text.len] == 0);
    const Json json = Json::parse(std::string_view(text.ptr, text.len));
    CHECK(json["plan"]["host_bytes"] == summary.host_bytes);
    Json folder = Json::parse(plan_with({}, {.context = 300, .sessions = 2}).value()->json());
    for (const char* key : {"operators", "tensors", "precision", "bytes", "layers", "state", "parameters"})
      CHECK(json[key] == folder[key]);

    dsa_model* model = nullptr;
    REQUIRE(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_OK);
    dsa_plan_release(plan);
    dsa_session* session = nullptr;
    REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
    CHECK(info_of(session).max_tokens == 300);
    dsa_session_release(session);
    dsa_session_options options = DSA_INIT(dsa_session_options);
    options.context_tokens = 1024;  // the pool holds two sessions of 300 tokens, 10 pages of 64
    CHECK(dsa_session_create(model, &options, &session) == DSA_ERROR_LIMIT);
    dsa_model_release(model);
  }

  TEST_CASE("dsa_plan: a model answers from a cache of bf16 or fp8") {
    const Opened opened;
    uint64_t kv_bytes[3] = {};
    for (const int32_t format : {DSA_KV_MODEL, DSA_KV_BF16, DSA_KV_FP8}) {
      dsa_plan_request request = DSA_INIT(dsa_plan_request);
      request.context_tokens = 300;
      request.kv_format = format;
      const dsa_str cpu = {"cpu:0", 5};
      request.device_ids = &cpu, request.num_device_ids = 1;
      dsa_plan* plan = nullptr;
      REQUIRE(opened.plan(&request, &plan) == DSA_OK);
      dsa_model* model = nullptr;
      REQUIRE(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_OK);
      dsa_plan_release(plan);
      dsa_session* session = nullptr;
      REQUIRE(dsa_session_create(model, nullptr, &session) == DSA_OK);
      const dsa_token tokens[] = {5, 6, 7, 8, 9};
      dsa_prompt* prompt = nullptr;
      REQUIRE(dsa_prompt_create(opened.runtime, &prompt) == DSA_OK);
      REQUIRE(dsa_prompt_tokens(prompt, tokens, 5) == DSA_OK);
      REQUIRE(dsa_session_prefill(session, prompt, nullptr, nullptr, nullptr) == DSA_OK);
      dsa_model_stats stats = DSA_INIT(dsa_model_stats);
      REQUIRE(dsa_model_get_stats(model, &stats) == DSA_OK);
      kv_bytes[format] = stats.kv_bytes;
      dsa_prompt_release(prompt);
      dsa_session_release(session);
      dsa_model_release(model);
    }
    CHECK(kv_bytes[0] > 0);
    CHECK(2 * kv_bytes[DSA_KV_BF16] == kv_bytes[DSA_KV_MODEL]);
    CHECK(kv_bytes[DSA_KV_FP8] > 0);
    CHECK(kv_bytes[DSA_KV_FP8] < kv_bytes[DSA_KV_BF16]);
  }

  TEST_CASE("dsa_plan: what is refused, and what is not feasible") {
    const Opened opened;
    dsa_plan* plan = nullptr;
    const auto create = [&](const auto& change) {
      dsa_plan_request request = DSA_INIT(dsa_plan_request);
      change(request);
      const dsa_status status = opened.plan(&request, &plan);
      CHECK(plan == nullptr);
      return status;
    };
    CHECK(create([](auto& r) { r.context_tokens = 1u << 30; }) == DSA_ERROR_LIMIT);
    CHECK(create([](auto& r) { r.sessions = 1u << 30; }) == DSA_ERROR_ARGUMENT);
    CHECK(create([](auto& r) { r.kv_format = 9; }) == DSA_ERROR_ARGUMENT);
    CHECK(create([](auto& r) { r.goal = DSA_GOAL_QUIET; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(create([](auto& r) { r.images_per_turn = 1; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(create([](auto& r) { r.struct_size = 3; }) == DSA_ERROR_ABI);
    CHECK(create([](auto& r) { r.num_device_ids = 1; }) == DSA_ERROR_ARGUMENT);
    static const dsa_str other = {"cuda:0", 6};  // the folder of modules is empty
    CHECK(create([](auto& r) { r.device_ids = &other, r.num_device_ids = 1; }) == DSA_ERROR_NO_DEVICE);
    static dsa_budget budget = DSA_INIT(dsa_budget);
    budget.flags = 1;
    CHECK(create([](auto& r) { r.budget = &budget; }) == DSA_ERROR_UNSUPPORTED);
    CHECK(dsa_plan_create(nullptr, nullptr, &plan) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_plan_create(opened.package, nullptr, nullptr) == DSA_ERROR_ARGUMENT);
    dsa_str text = {};
    CHECK(dsa_plan_explain(nullptr, &text) == DSA_ERROR_ARGUMENT);
    CHECK(dsa_plan_get(nullptr, nullptr) == DSA_ERROR_ARGUMENT);
    dsa_plan_release(nullptr);

    budget.flags = 0;
    budget.host_bytes = 4096;
    dsa_plan_request request = DSA_INIT(dsa_plan_request);
    request.budget = &budget;
    REQUIRE(opened.plan(&request, &plan) == DSA_OK);
    dsa_plan_summary summary = DSA_INIT(dsa_plan_summary);
    REQUIRE(dsa_plan_get(plan, &summary) == DSA_OK);
    CHECK(summary.feasible == 0);
    CHECK(summary.bound == DSA_BOUND_NONE);
    dsa_model* model = nullptr;
    CHECK(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_ERROR_OVER_BUDGET);
    CHECK(last_error().needed == summary.host_bytes);
    CHECK(last_error().available == 4096);
    CHECK(last_error().fix == DSA_FIX_LOWER_BUDGET);
    dsa_plan_release(plan);

    const Opened twin;
    plan = nullptr;
    REQUIRE(twin.plan(nullptr, &plan) == DSA_OK);
    CHECK(dsa_model_load(opened.package, plan, nullptr, nullptr, nullptr, &model) == DSA_ERROR_ARGUMENT);
    CHECK(model == nullptr);
    dsa_plan_release(plan);
  }

  TEST_CASE("GPU-02 a module that cannot be loaded is a device with its reason") {
    dsa_plan* plan = nullptr;
    const Opened none;
    size_t devices = 0;
    CHECK(dsa_runtime_count_devices(none.runtime, &devices) == DSA_OK);
    CHECK(devices == 1);
    CHECK(none.plan_on("cuda:GPU-1", &plan) == DSA_ERROR_NO_DEVICE);
    CHECK(std::string(last_error().message.ptr).find("cuda:GPU-1") != std::string::npos);

    const Opened opened("not a library");
    dsa_device_info info = DSA_INIT(dsa_device_info);
    REQUIRE(dsa_runtime_get_device(opened.runtime, 1, &info) == DSA_OK);
    CHECK(info.usable == 0);
    CHECK(info.why_not_code == DSA_ERROR_BACKEND);
    CHECK(info.why_not.len > 0);
    CHECK(dsa_runtime_get_device(opened.runtime, 2, &info) == DSA_ERROR_ARGUMENT);
    CHECK(opened.plan_on("cuda", &plan) == DSA_ERROR_BACKEND);
    CHECK(plan == nullptr);
    REQUIRE(opened.plan(nullptr, &plan) == DSA_OK);  // nobody named a device: the CPU
    dsa_str text = {};
    REQUIRE(dsa_plan_explain(plan, &text) == DSA_OK);
    const Json json = Json::parse(std::string_view(text.ptr, text.len));
    CHECK(json["plan"]["device"] == "cpu:0");
    REQUIRE(json["backends"].size() == 2);
    CHECK(json["backends"][1]["name"] == "cuda");
    CHECK(json["backends"][1]["why_not"] != "");
    CHECK(json["operators"][0]["kernels"]["cuda"] == "");
    dsa_plan_release(plan);
  }
}
