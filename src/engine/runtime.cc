#include "engine/runtime.h"

#include <pthread.h>
#include <sys/sysinfo.h>

#include <fstream>
#include <system_error>

#include "backend/signals.h"

namespace dsa {
namespace {

thread_local CallbackKind t_callback = CallbackKind::none;

std::string read_cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "CPU";
}

}  // namespace

CallbackKind current_callback() { return t_callback; }
CallbackScope::CallbackScope(CallbackKind kind) : outer_(t_callback) { t_callback = kind; }
CallbackScope::~CallbackScope() { t_callback = outer_; }

Runtime::Runtime(const Options& options)
    : options_(options),
      log_level_(options.log != nullptr ? options.log_level : LogLevel::off),
      cpu_name_(read_cpu_name()) {}

Status Runtime::set_log(LogLevel level, LogFn sink, void* ud) {
  if (current_callback() == CallbackKind::silent)
    return error(Code::reentrant, "the log cannot be replaced from inside a log callback");
  std::unique_lock lock(log_mutex_);
  log_idle_.wait(lock, [&] { return !logging_; });
  options_.log = sink;
  options_.log_ud = ud;
  log_level_ = sink != nullptr ? level : LogLevel::off;
  return Status::ok();
}

void Runtime::write_log(LogLevel level, const char* where, const std::string& line) {
  if (current_callback() == CallbackKind::silent) return;
  LogFn sink;
  void* ud;
  {
    std::unique_lock lock(log_mutex_);
    log_idle_.wait(lock, [&] { return !logging_; });
    if (options_.log == nullptr || level > log_level_) return;
    sink = options_.log;
    ud = options_.log_ud;
    logging_ = true;  // one sink call at a time, without a lock
  }
  try {
    const CallbackScope scope(CallbackKind::silent);
    sink(ud, int32_t(level), where, line.c_str());
  } catch (...) {
  }
  {
    const std::lock_guard lock(log_mutex_);
    logging_ = false;
  }
  log_idle_.notify_all();
}

void Runtime::call_on_thread(const char* name, bool entering) noexcept {
  if (options_.on_thread == nullptr) return;
  try {
    const CallbackScope scope(CallbackKind::silent);
    options_.on_thread(options_.on_thread_ud, name, entering ? 1 : 0);
  } catch (...) {
  }
}

std::vector<DeviceInfo> Runtime::find_devices() {
  DeviceInfo cpu;
  cpu.id = kCpuDevice;
  cpu.name = cpu_name_;
  cpu.integrated = true;
  cpu.total_bytes = total_memory();
  cpu.free_bytes = free_memory();
  std::vector<DeviceInfo> found{cpu};
  for (DeviceInfo& gpu : list_gpus(options_.module_dir)) found.push_back(std::move(gpu));
  const std::lock_guard lock(devices_mutex_);
  devices_ = found;
  return found;
}

std::vector<DeviceInfo> Runtime::devices() {
  {
    const std::lock_guard lock(devices_mutex_);
    if (!devices_.empty()) return devices_;
  }
  return find_devices();
}

std::string_view Runtime::keep(const std::string& text) {
  const std::lock_guard lock(devices_mutex_);
  return *kept_.insert(text).first;
}

uint64_t Runtime::total_memory() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? uint64_t(info.totalram) * info.mem_unit : 0;
}

uint64_t Runtime::free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  struct sysinfo info;
  return sysinfo(&info) == 0 ? uint64_t(info.freeram) * info.mem_unit : 0;
}

Status start_thread(std::shared_ptr<Runtime> runtime, const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    std::thread([runtime = std::move(runtime), name, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name);
      runtime->call_on_thread(name, true);
      body();
      body = nullptr;  // whatever it owns goes before the last call
      runtime->call_on_thread(name, false);
    }).detach();
  } catch (const std::system_error& e) {
    return error(Code::out_of_memory, "cannot start thread ", name, ": ", e.what())
        .with_native(e.code().value());
  }
  return Status::ok();
}

}  // namespace dsa
