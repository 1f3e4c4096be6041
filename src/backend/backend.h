// backend/backend.h: where a model runs: its kernels, the queue that executes them and the memory that they use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  // A queue whose work may run beside that of queue(); the same one where there is no other. It has no scratch memory.
  virtual Queue& side() { return queue(); }
  // What `queue` is given from now on waits for all that `first` has been given.
  virtual void follow([[maybe_unused]] Queue& queue, [[maybe_unused]] Queue& first) {}
  virtual Storage& storage() = 0;
  // A thread uses the queue while it holds what this returns, which may be null.
  [[nodiscard]] virtual std::shared_ptr<void> enter_thread() { return nullptr; }

  // Rows of an expert from which it is worth it to multiply FP8, to which its MXFP4 weights are expanded; 0: never.
  virtual int fp8_rows() const { return 0; }
  // Of these, from which one does better to expand them to memory once than within the product; 0: all.
  virtual int expand_rows() const { return 0; }

  // True if replay() keeps what it has seen.
  virtual bool can_replay() const { return false; }
  // Puts `work` on the queue. Work of the same key makes the same launches with the same arguments, and differs only in
  // what the memory holds that they point to: it may be recorded once and put there again.
  virtual void replay(uint64_t, const std::function<void()>& work) { work(); }

  // True if one launch for several operators pays: steps of few rows then take the fused ones.
  virtual bool fuses() const { return false; }
  // True if tokens are better chosen where the logits are than after a copy of them.
  virtual bool samples() const { return false; }
};

// One backend: what it has kernels for, said without starting it.
struct BackendKernels {
  std::string name;                     // that of Backend::name()
  std::string why_not;                  // empty if it can run on this machine, else one sentence
  std::vector<KernelVariant> variants;  // plain to best; an operator without a kernel is null
};
// All of this build: the CPU, and CUDA if its module lies beside the library, also where it cannot run. Looks for GPUs
// once.
const std::vector<BackendKernels>& backends_of_build();

// The CPU with its best kernels. threads 0: all cores but one, at least one.
Result<std::unique_ptr<Backend>> create_cpu_backend(int threads, ThreadCallback on_thread = {});

}  // namespace dsa
