// backend/cpu/cpu_backend.cc: the best kernels of this CPU on a pool of threads.
#include <algorithm>
#include <system_error>
#include <thread>

#include "backend/backend.h"
#include "backend/cpu/thread_pool.h"

namespace dsa {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int threads, ThreadCallback on_thread)
      : kernels_(kernels), pool_(threads, pool_callback(std::move(on_thread))) {}

  const char* name() const override { return "cpu"; }
  const KernelTable& kernels() const override { return kernels_; }
  Queue& queue() override { return pool_; }
  Storage& storage() override { return host_storage(); }

 private:
  static ThreadPool::OnThread pool_callback(ThreadCallback on_thread) {
    if (!on_thread) return {};
    return [on_thread = std::move(on_thread)](ThreadEvent event) {
      on_thread("dsa-worker", event == ThreadEvent::start);
    };
  }

  const KernelTable& kernels_;
  ThreadPool pool_;
};

}  // namespace

Result<std::unique_ptr<Backend>> create_cpu_backend(int threads, ThreadCallback on_thread) {
  if (threads == 0) threads = std::max(1, int(std::thread::hardware_concurrency()) - 1);
  if (threads < 1 || threads > 1024)
    return error(Code::argument, threads, " threads; expected 0 to 1024").with_fix(Fix::input);
  try {
    return std::unique_ptr<Backend>(
        std::make_unique<CpuBackend>(cpu_kernels(), threads, std::move(on_thread)));
  } catch (const std::system_error& e) {
    return error(Code::out_of_memory, "cannot start ", threads, " threads: ", e.what())
        .with_native(e.code().value());
  }
}

}  // namespace dsa
