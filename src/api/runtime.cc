// api/runtime.cc: runtimes and devices.
#include "api/handles.h"
#include "api/structs.h"

using namespace dsa;
using namespace dsa::api;

dsa_status dsa_runtime_create(const dsa_runtime_options* options, dsa_runtime** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_pointer(out, "out"));
    dsa_runtime_options o{};
    if (options != nullptr) DSA_TRY(read_in(options, "dsa_runtime_options", o));
    DSA_TRY(check_constant(o.isolation, 2, "isolation"));
    DSA_TRY(check_constant(o.log_level, 5, "log_level"));
    DSA_TRY(check_reserved(o.isolation != DSA_ISOLATE_NONE, "isolation"));
    DSA_TRY(check_reserved(o.host_allocator != nullptr, "host_allocator"));
    DSA_TRY(check_reserved(o.cache_dir.len != 0, "cache_dir"));
    DSA_TRY(check_reserved(o.reserved != 0, "dsa_runtime_options.reserved"));
    if (o.max_threads > 1024)
      return error(Code::argument, "max_threads is ", o.max_threads, ", expected 0 to 1024")
          .with_fix(Fix::input);

    Runtime::Options made;
    made.log_level = LogLevel(o.log_level);
    made.log = o.log;
    made.log_ud = o.log_ud;
    made.on_thread = o.on_thread;
    made.on_thread_ud = o.on_thread_ud;
    made.max_threads = int(o.max_threads);
    DSA_ASSIGN(const std::string_view module_dir,
               read_utf8(o.module_dir.ptr, o.module_dir.len, "module_dir"));
    made.module_dir = module_dir;
    *out = new dsa_runtime(std::make_shared<Runtime>(made));
    return DSA_OK;
  });
}

void dsa_runtime_retain(const dsa_runtime* runtime) { retain(runtime); }
void dsa_runtime_release(const dsa_runtime* runtime) { release(runtime); }

dsa_status dsa_runtime_set_log(const dsa_runtime* runtime, int32_t level, dsa_log_fn log, void* ud) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_constant(level, 5, "level"));
    return runtime->impl->set_log(LogLevel(level), log, ud);
  });
}

dsa_status dsa_runtime_count_devices(const dsa_runtime* runtime, size_t* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(out, "out"));
    *out = runtime->impl->find_devices().size();
    return DSA_OK;
  });
}

dsa_status dsa_runtime_get_device(const dsa_runtime* runtime, size_t index, dsa_device_info* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_out(out, "dsa_device_info"));
    const std::vector<DeviceInfo> devices = runtime->impl->devices();
    if (index >= devices.size())
      return error(Code::argument, "there is no device ", index, ", the last one is ", devices.size() - 1)
          .with_fix(Fix::input);
    const DeviceInfo& device = devices[index];
    const auto keep = [&](const std::string& text) { return view_of(runtime->impl->keep(text)); };
    dsa_device_info info{};
    info.id = keep(device.id);
    info.name = keep(device.name);
    info.driver = keep(device.driver);
    info.why_not = keep(device.why_not.message());
    info.why_not_code = int32_t(device.why_not.code());
    info.usable = device.why_not.is_ok();
    info.integrated = device.integrated;
    info.drives_display = device.drives_display;
    info.total_bytes = device.total_bytes;
    info.free_bytes = device.free_bytes;
    write_out(info, out);
    return DSA_OK;
  });
}
