// backend/backend.h: where a model runs: its kernels, the queue that executes them and the memory that they use.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/storage.h"
#include "base/status.h"
#include "kernels/common/queue.h"
#include "kernels/kernel_table.h"

namespace dsa {

// Called by each thread of a backend first (entering) and last.
using ThreadCallback = std::function<void(const char* name, bool entering)>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual const KernelTable& kernels() const = 0;
  virtual Queue& queue() = 0;
  virtual Storage& storage() = 0;
  // Before a thread uses the queue.
  virtual void enter_thread() {}
};

// The CPU with its best kernels. threads 0: all cores but one, at least one.
Result<std::unique_ptr<Backend>> create_cpu_backend(int threads, ThreadCallback on_thread = {});

}  // namespace dsa
