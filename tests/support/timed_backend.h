// tests/bench/timed_backend.h: a backend that notes how long each operator takes.
#pragma once

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "bench/bench.h"

namespace dsa::bench {

// Time spent in each operator since the last reset, by wrapping every kernel of the table.
struct OperatorTimes {
#define DSA_TIME_MEMBER(name, Args) double name = 0;
  DSA_FOR_EACH_KERNEL(DSA_TIME_MEMBER)
#undef DSA_TIME_MEMBER
};
inline OperatorTimes operator_times;

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& backend) : backend_(backend) {
#define DSA_TIME_WRAP(name, Args)                                             \
  table_.name = [](const Args& args, Queue& queue) {                          \
    operator_times.name += seconds([&] { cpu_kernels().name(args, queue); }); \
  };
    DSA_FOR_EACH_KERNEL(DSA_TIME_WRAP)
#undef DSA_TIME_WRAP
  }
  const char* name() const override { return "timed"; }
  const KernelTable& kernels() const override { return table_; }
  Queue& queue() override { return backend_.queue(); }
  Storage& storage() override { return backend_.storage(); }

 private:
  Backend& backend_;
  KernelTable table_;
};

// The operators that took at least 1 % of `total`, largest first.
inline void print_operators(const char* what, double total) {
  std::vector<std::pair<double, const char*>> times;
#define DSA_TIME_LIST(name, Args) times.push_back({operator_times.name, #name});
  DSA_FOR_EACH_KERNEL(DSA_TIME_LIST)
#undef DSA_TIME_LIST
  std::sort(times.rbegin(), times.rend());
  printf("%s by operator:", what);
  for (const auto& [time, name] : times)
    if (time >= 0.01 * total) printf("  %s %.0f %%", name, 100 * time / total);
  printf("\n");
}

}  // namespace dsa::bench
