// engine/runtime.h: what all packages and models of one user of the library share: log, thread callbacks, run
// numbers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "base/status.h"

namespace dsa {

enum class LogLevel : int32_t { off, error, warning, info, debug };

// What the calling thread is inside of. Calls from there are refused where they could wait for themselves.
enum class CallbackKind { none, wakeup, silent };  // silent: log and thread callbacks, which may call nothing
CallbackKind current_callback();

class CallbackScope {
 public:
  explicit CallbackScope(CallbackKind kind);
  ~CallbackScope();

 private:
  CallbackKind outer_;
};

class Runtime {
 public:
  using LogFn = void (*)(void* ud, int32_t level, const char* where, const char* line);
  using ThreadFn = void (*)(void* ud, const char* name, int32_t entering);

  struct Options {
    LogLevel log_level = LogLevel::off;
    LogFn log = nullptr;
    void* log_ud = nullptr;
    ThreadFn on_thread = nullptr;
    void* on_thread_ud = nullptr;
    int max_threads = 0;
    std::string module_dir;  // empty: the folder of the library
  };

  explicit Runtime(const Options& options);

  // When it returns, the old sink is never called again. Code::reentrant from inside the sink.
  Status set_log(LogLevel level, LogFn sink, void* ud);
  template <class... Parts>
  void log(LogLevel level, const char* where, const Parts&... parts) noexcept {
    if (level > log_level_.load(std::memory_order_relaxed)) return;
    try {
      write_log(level, where, concat(parts...));
    } catch (...) {  // no memory for a log line
    }
  }

  void call_on_thread(const char* name, bool entering) noexcept;
  int max_threads() const { return options_.max_threads; }
  uint64_t next_run_id() { return next_run_id_.fetch_add(1, std::memory_order_relaxed); }

  const std::string& module_dir() const { return options_.module_dir; }

  // The CPU, then the GPUs. Looks for them again, or gives what was found last.
  std::vector<DeviceInfo> find_devices();
  std::vector<DeviceInfo> devices();
  // The same text for as long as the runtime lives.
  std::string_view keep(const std::string& text);
  static uint64_t total_memory();
  static uint64_t free_memory();

 private:
  void write_log(LogLevel level, const char* where, const std::string& line);

  Options options_;
  std::atomic<LogLevel> log_level_;
  std::mutex log_mutex_;  // not held while the sink runs
  std::condition_variable log_idle_;
  bool logging_ = false;
  std::atomic<uint64_t> next_run_id_{1};
  std::string cpu_name_;
  std::mutex devices_mutex_;
  std::vector<DeviceInfo> devices_;
  std::set<std::string> kept_;
};

// Starts a detached thread with a name and all signals blocked. It calls on_thread first and last.
Status start_thread(std::shared_ptr<Runtime> runtime, const char* name, std::function<void()> body);

}  // namespace dsa
