// support/noting_backend.h: a backend that notes which operators are called, and how long each takes.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "backend/backend.h"

namespace dsa::test {

// Seconds in each operator that was called, by name, since this was cleared. One thread calls operators.
inline std::map<std::string, double> operator_times;

// The kernels of the CPU, on a backend of the CPU.
class NotingBackend final : public Backend {
 public:
  explicit NotingBackend(Backend& backend) : backend_(backend) {
#define DSA_TIME_KERNEL(name, Args)                                                      \
  table_.name = [](const Args& args, Queue& queue) {                                     \
    const auto begin = std::chrono::steady_clock::now();                                 \
    cpu_kernels().name(args, queue);                                                     \
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin; \
    operator_times[#name] += time.count();                                               \
  };
    DSA_FOR_EACH_KERNEL(DSA_TIME_KERNEL)
#undef DSA_TIME_KERNEL
  }
  const char* name() const override { return "timed"; }
  const KernelTable& kernels() const override { return table_; }
  Queue& queue() override { return backend_.queue(); }
  Storage& storage() override { return backend_.storage(); }

 private:
  Backend& backend_;
  KernelTable table_;
};

}  // namespace dsa::test
