// api/plan.cc: what loading would cost.
#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

namespace {

Result<PlanRequest> read_request(const dsa_plan_request* request) {
  PlanRequest made;
  if (request == nullptr) return made;
  dsa_plan_request r{};
  DSA_TRY(read_in(request, "dsa_plan_request", r));
  DSA_TRY(check_reserved(r.images_per_turn != 0, "images_per_turn"));
  DSA_TRY(check_reserved(r.typical_prompt_tokens != 0, "typical_prompt_tokens"));
  DSA_TRY(check_reserved(r.kv_format != DSA_KV_MODEL, "kv_format"));
  DSA_TRY(check_reserved(r.goal != DSA_GOAL_BALANCED, "goal"));
  if (r.num_device_ids > 0) DSA_TRY(check_pointer(r.device_ids, "device_ids"));
  for (size_t i = 0; i < r.num_device_ids; ++i) {
    DSA_ASSIGN(const std::string_view id, read_utf8(r.device_ids[i].ptr, r.device_ids[i].len, "a device id"));
    made.devices.emplace_back(id);
  }
  if (r.sessions > 4096)
    return error(Code::argument, "sessions is ", r.sessions, ", expected 0 to 4096").with_fix(Fix::input);
  made.context_tokens = r.context_tokens;
  made.sessions = r.sessions == 0 ? 1 : r.sessions;
  if (r.budget == nullptr) return made;
  dsa_budget b{};
  DSA_TRY(read_in(r.budget, "dsa_budget", b));
  DSA_TRY(check_reserved(b.host_bytes != 0, "dsa_budget.host_bytes"));
  DSA_TRY(check_reserved(b.disk_cache_bytes != 0, "dsa_budget.disk_cache_bytes"));
  DSA_TRY(check_reserved(b.leave_host_bytes != 0, "dsa_budget.leave_host_bytes"));
  made.device_bytes = b.device_bytes;
  made.leave_device_bytes = b.leave_device_bytes;
  return made;
}

}  // namespace

dsa_status dsa_plan_create(const dsa_package* package, const dsa_plan_request* request, dsa_plan** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(package, "package"));
    DSA_TRY(check_pointer(out, "out"));
    DSA_ASSIGN(const PlanRequest made, read_request(request));
    DSA_ASSIGN(std::shared_ptr<const Plan> plan, Plan::create(package->impl, made));
    *out = new dsa_plan(std::move(plan));
    return DSA_OK;
  });
}

void dsa_plan_release(dsa_plan* plan) { release(plan); }

dsa_status dsa_plan_get(const dsa_plan* plan, dsa_plan_summary* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(plan, "plan"));
    DSA_TRY(check_out(out, "dsa_plan_summary"));
    const Plan& p = *plan->impl;
    dsa_plan_summary made{};
    made.feasible = p.feasible();
    made.context_tokens = uint32_t(p.context_tokens());
    made.sessions = uint32_t(p.sessions());
    made.device_bytes = p.device_bytes();
    made.host_bytes = p.host_bytes();
    made.experts_on_device = p.is_cpu() ? 0.f : 1.f;
    made.experts_on_host = p.is_cpu() ? 1.f : 0.f;
    write_out(made, out);
    return DSA_OK;
  });
}

dsa_status dsa_plan_explain(const dsa_plan* plan, dsa_str* json) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(plan, "plan"));
    DSA_TRY(check_pointer(json, "json"));
    *json = view_of(plan->impl->explanation());
    return DSA_OK;
  });
}
