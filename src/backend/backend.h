// backend/backend.h: where a model runs: its kernels and the queue that executes them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
};

// One backend of this build: what it has kernels for, said without starting it.
struct BackendKernels {
  std::string name;                     // that of Backend::name()
  std::string why_not;                  // empty if it can run on this machine, else one sentence
  std::vector<KernelVariant> variants;  // plain to best; an operator without a kernel is null
};
// All of them. A backend that is built in is listed here, also where it cannot run.
const std::vector<BackendKernels>& backends_of_build();

// The CPU with its best kernels. threads 0: all cores but one, at least one.
Result<std::unique_ptr<Backend>> create_cpu_backend(int threads, ThreadCallback on_thread = {});

}  // namespace dsa
