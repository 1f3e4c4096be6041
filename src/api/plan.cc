// api/plan.cc: what loading would cost.
#include "engine/plan.h"

#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

namespace {

Result<std::vector<std::string>> read_devices(const dsa_plan_request& request) {
  std::vector<std::string> ids;
  if (request.num_device_ids == 0) return ids;
  DSA_TRY(check_pointer(request.device_ids, "device_ids"));
  for (size_t i = 0; i < request.num_device_ids; ++i) {
    DSA_ASSIGN(const std::string_view id,
               read_utf8(request.device_ids[i].ptr, request.device_ids[i].len, "device_ids"));
    ids.emplace_back(id);
  }
  return ids;
}

}  // namespace

dsa_status dsa_plan_create(const dsa_package* package, const dsa_plan_request* request, dsa_plan** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(package, "package"));
    DSA_TRY(check_pointer(out, "out"));
    dsa_plan_request r{};
    dsa_budget budget{};
    if (request != nullptr) DSA_TRY(read_in(request, "dsa_plan_request", r));
    if (r.budget != nullptr) DSA_TRY(read_in(r.budget, "dsa_budget", budget));
    DSA_ASSIGN(std::vector<std::string> devices, read_devices(r));
    DSA_TRY(check_constant(r.kv_format, 3, "kv_format"));
    DSA_TRY(check_constant(r.goal, 4, "goal"));
    DSA_TRY(check_reserved(r.images_per_turn != 0, "images_per_turn"));
    DSA_TRY(check_reserved(r.typical_prompt_tokens != 0, "typical_prompt_tokens"));
    DSA_TRY(check_reserved(r.goal != DSA_GOAL_BALANCED, "goal"));
    if (r.sessions > 1u << 20)
      return error(Code::argument, "sessions is ", r.sessions, ", expected 0 to ", 1u << 20)
          .with_fix(Fix::input);
    PlanRequest made{.context = r.context_tokens,
                     .sessions = std::max<int64_t>(r.sessions, 1),
                     .host_bytes = budget.host_bytes,
                     .leave_host_bytes = budget.leave_host_bytes,
                     .devices = std::move(devices),
                     .device_bytes = budget.device_bytes,
                     .leave_device_bytes = budget.leave_device_bytes};
    if (r.kv_format == DSA_KV_BF16) made.cache_format = CacheFormat::bf16;
    if (r.kv_format == DSA_KV_FP8) made.cache_format = CacheFormat::fp8;
    DSA_ASSIGN(std::shared_ptr<const Plan> plan, package->impl->plan(made));
    const bool on_gpu = plan->placement().on_gpu() && !plan->placement().fits_device();
    const bool has_budget = on_gpu ? made.device_bytes != 0 || made.leave_device_bytes != 0
                                   : made.host_bytes != 0 || made.leave_host_bytes != 0;
    *out = new dsa_plan(std::move(plan), package->impl, has_budget);
    return DSA_OK;
  });
}

void dsa_plan_release(dsa_plan* plan) { release(plan); }

dsa_status dsa_plan_get(const dsa_plan* plan, dsa_plan_summary* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(plan, "plan"));
    DSA_TRY(check_out(out, "dsa_plan_summary"));
    const Placement& p = plan->impl->placement();
    dsa_plan_summary summary{};
    summary.feasible = p.feasible ? 1 : 0;
    summary.bound = !p.feasible                  ? DSA_BOUND_NONE
                    : p.on_gpu()                 ? DSA_BOUND_DEVICE_MEMORY
                    : p.disk_bytes_per_token > 0 ? DSA_BOUND_DISK
                                                 : DSA_BOUND_HOST;
    summary.context_tokens = uint32_t(p.context);
    summary.sessions = uint32_t(p.sessions);
    summary.device_bytes = p.device_bytes();
    summary.host_bytes = p.host_bytes;
    summary.disk_bytes_per_token = p.disk_bytes_per_token;
    summary.experts_on_device = float(p.experts_on_device);
    summary.experts_on_host = float(p.experts_on_host);
    write_out(summary, out);
    return DSA_OK;
  });
}

dsa_status dsa_plan_explain(const dsa_plan* plan, dsa_str* json) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(plan, "plan"));
    DSA_TRY(check_pointer(json, "json"));
    *json = view_of(plan->impl->json());
    return DSA_OK;
  });
}
