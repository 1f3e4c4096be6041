#include "engine/plan.h"

#include <algorithm>

#include "io/json.h"

namespace dsa {
namespace {

int64_t pages_of(int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; }

// A session has its state in two copies, and a third one while a run may still be taken back.
constexpr int64_t kStatesPerSession = 3;

// Prompt tokens that go through a GPU at a time: experts have many rows, and their weights are read less often.
constexpr int kGpuStepTokens = 2048;

}  // namespace

Result<std::shared_ptr<const Plan>> Plan::create(std::shared_ptr<const Package> package,
                                                 const PlanRequest& request) {
  const int64_t most = package->config().max_context;
  if (request.context_tokens > most)
    return error(Code::limit, "a context of ", request.context_tokens, " tokens, this model has at most ",
                 most)
        .with_fix(Fix::shorten)
        .with_room(uint64_t(request.context_tokens), uint64_t(most));
  if (request.devices.size() > 1)
    return error(Code::unsupported, request.devices.size(), " devices, this version uses one");
  const std::shared_ptr<Plan> plan(new Plan);
  plan->package_ = std::move(package);
  plan->sessions_ = int(request.sessions);
  const std::string wanted = request.devices.empty() ? "" : request.devices.front();
  if (wanted == kCpu || wanted == "cpu") {
    DSA_TRY(plan->place_on_cpu(request));
    plan->explain();
    return std::shared_ptr<const Plan>(plan);
  }
  const std::vector<DeviceInfo> devices = plan->package_->runtime()->find_devices();
  int64_t number = 0;
  for (const DeviceInfo& device : devices) {
    if (device.id == kCpu) continue;
    const bool named = device.id == wanted || wanted == concat("cuda:", number++) || wanted == "cuda";
    if (!wanted.empty() && !named) continue;
    if (!device.why_not.is_ok()) {
      if (wanted.empty() || (wanted == "cuda" && &device != &devices.back())) continue;
      return device.why_not;
    }
    DSA_TRY(plan->place_on_gpu(device, request));
    if (!wanted.empty() || plan->feasible()) {
      plan->explain();
      return std::shared_ptr<const Plan>(plan);
    }
  }
  if (!wanted.empty())
    return error(Code::no_device, "there is no device '", wanted, "' among ", devices.size())
        .with_fix(Fix::input);
  DSA_TRY(plan->place_on_cpu(request));
  plan->explain();
  return std::shared_ptr<const Plan>(plan);
}

Status Plan::place_on_gpu(const DeviceInfo& device, const PlanRequest& request) {
  ModelOptions options;
  options.max_step_tokens = kGpuStepTokens;
  options.fp8_rows = device.fp8_rows;
  DSA_ASSIGN(const ModelSize size, package_->measure(options));
  const int64_t most = package_->config().max_context;
  device_ = device.id;
  why_not_ = Status::ok();
  available_ = device.free_bytes;
  if (request.device_bytes > 0) available_ = std::min(available_, request.device_bytes);
  const uint64_t left = std::min(device.free_bytes, request.leave_device_bytes);
  available_ = std::min(available_, device.free_bytes - left);

  const uint64_t sessions = uint64_t(request.sessions);
  const uint64_t states = size.state * sessions * kStatesPerSession;
  const uint64_t fixed = size.weights + size.step + size.fp8_workspace + device.backend_bytes + states;
  const uint64_t page = std::max<uint64_t>(size.page * sessions, 1);  // one of each session
  const uint64_t fitting = fixed < available_ ? (available_ - fixed) / page * kPageSize : 0;
  int64_t context = request.context_tokens;
  if (context == 0)
    context = std::clamp<int64_t>(int64_t(std::min<uint64_t>(fitting, uint64_t(most))), 1, most);
  context_tokens_ = int(context);
  device_parts_ = {{"weights", size.weights},
                   {"step", size.step},
                   {"fp8_workspace", size.fp8_workspace},
                   {"operators", device.backend_bytes},
                   {"pages", uint64_t(pages_of(context)) * size.page * sessions},
                   {"states", states}};
  host_bytes_ = size.host;
  if (device_bytes() <= available_) return Status::ok();

  why_not_ = error(Code::out_of_device_memory, device.name, " has ", available_,
                   " bytes for this model, which needs ", device_bytes())
                 .with_fix(Fix::lower_budget)
                 .with_room(device_bytes(), available_);
  help_ = fitting >= kPageSize ? concat("a context of ", std::min<uint64_t>(fitting, uint64_t(most)),
                                        " tokens instead of ", context)
                               : concat("a device with ", device_bytes() - available_, " more free bytes");
  return Status::ok();
}

Status Plan::place_on_cpu(const PlanRequest& request) {
  DSA_ASSIGN(const ModelSize size, package_->measure({}));
  const int64_t most = package_->config().max_context;
  device_ = kCpu;
  why_not_ = Status::ok();
  device_parts_.clear();
  context_tokens_ =
      int(request.context_tokens > 0 ? request.context_tokens
                                     : std::min<int64_t>(most, EngineOptions().default_context));
  host_bytes_ = size.step + uint64_t(request.sessions) * (uint64_t(pages_of(context_tokens_)) * size.page +
                                                          kStatesPerSession * size.state);
  return Status::ok();
}

uint64_t Plan::device_bytes() const {
  uint64_t total = 0;
  for (const auto& [name, bytes] : device_parts_) total += bytes;
  return total;
}

EngineOptions Plan::engine_options() const {
  EngineOptions options;
  options.default_context = context_tokens_;
  if (is_cpu()) {
    options.pool_sessions = std::max(options.pool_sessions, sessions_);
    return options;
  }
  options.device = device_;
  options.step_tokens = kGpuStepTokens;
  options.pool_sessions = sessions_;
  options.pool_states = int(kStatesPerSession) * sessions_;
  return options;
}

void Plan::explain() {
  Json json;
  json["device"] = device_;
  json["feasible"] = feasible();
  json["context_tokens"] = context_tokens_;
  json["sessions"] = sessions_;
  json["host_bytes"] = host_bytes_;
  if (!is_cpu()) {
    Json parts = Json::object();
    for (const auto& [name, bytes] : device_parts_) parts[name] = bytes;
    json["device_bytes"] = std::move(parts);
    json["device_bytes_available"] = available_;
  }
  if (!feasible()) {
    json["why_not"] = why_not_.message();
    json["help"] = Json::array({help_});
  }
  explanation_ = json.dump();
}

}  // namespace dsa
