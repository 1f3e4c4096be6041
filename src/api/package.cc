// api/package.cc: what is on disk.
#include "engine/package.h"

#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

dsa_status dsa_package_open(const dsa_runtime* runtime, const dsa_source* source, dsa_package** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(source, "source"));
    DSA_TRY(check_pointer(out, "out"));
    dsa_source s{};
    DSA_TRY(read_in(source, "dsa_source", s));
    DSA_TRY(check_reserved(s.read != nullptr || s.read_ud != nullptr || s.read_done != nullptr,
                           "dsa_source.read"));
    DSA_TRY(check_reserved(s.sha256.len != 0, "dsa_source.sha256"));
    DSA_ASSIGN(const std::string_view path, read_utf8(s.path.ptr, s.path.len, "path"));
    DSA_ASSIGN(std::shared_ptr<const Package> package, Package::open(runtime->impl, std::string(path)));
    *out = new dsa_package(std::move(package));
    return DSA_OK;
  });
}

void dsa_package_retain(const dsa_package* package) { retain(package); }
void dsa_package_release(const dsa_package* package) { release(package); }

dsa_status dsa_package_get_info(const dsa_package* package, dsa_package_info* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(package, "package"));
    DSA_TRY(check_out(out, "dsa_package_info"));
    const Package& p = *package->impl;
    const ModelConfig& config = p.config();
    dsa_package_info info{};
    info.name = view_of(p.name());
    info.family = view_of(config.family);
    info.license = view_of("");
    info.content_id = view_of(p.content_id());
    info.parameters = config.parameters;
    info.active_parameters = config.active_parameters;
    info.weight_bytes = p.weight_bytes();
    info.expert_bytes = p.expert_bytes();
    info.layers = uint32_t(config.layers.size());
    info.experts = uint32_t(config.moe.experts);
    info.experts_per_token = uint32_t(config.moe.top_k);
    info.max_context = uint32_t(config.max_context);
    info.has_images = p.has_images() ? 1 : 0;
    info.has_tools = p.has_tools() ? 1 : 0;
    info.has_reasoning = p.has_chat() ? 1 : 0;
    info.kv_bytes_per_token = p.kv_bytes_per_token();
    info.checkpoint_bytes = p.state_bytes();
    write_out(info, out);
    return DSA_OK;
  });
}

dsa_status dsa_package_get_meta(const dsa_package* package, const char* key, dsa_str* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(package, "package"));
    DSA_TRY(check_pointer(key, "key"));
    DSA_TRY(check_pointer(out, "out"));
    const std::string* value = package->impl->meta(key);
    if (value == nullptr) return error(Code::not_found, "config.json has no value '", key, "'");
    *out = view_of(*value);
    return DSA_OK;
  });
}
