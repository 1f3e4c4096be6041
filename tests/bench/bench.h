// tests/bench/bench.h: dsa_bench, one file per subcommand, and what they share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/queue.h"
#include "tests/support/timed_backend.h"

namespace dsa::bench {

using test::HostClock;
using test::OperatorClock;
using test::OperatorTime;
using test::OperatorTimes;
using test::TimedBackend;
using test::Watch;

// Subcommands return the exit status of the program.
int kernels_bench(int threads);  // operators against the memory and the multipliers of this machine
int vision_bench(int threads);   // pictures through a tower of K3's shape

inline double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + int64_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class F>
double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second of one pass over 512 MiB, a run of it per item of the queue. The memory is allocated at the first
// call and kept.
double read_bandwidth(Queue& queue);
// The same over memory that is there already, in whole MiB: where memory lies matters to its speed.
double read_bandwidth(Queue& queue, const void* data, size_t bytes);
// f32 operations per second of fma on registers alone, two for each; int8 ones where the processor has VNNI, else 0.
double peak_f32(Queue& queue);
double peak_int8(Queue& queue);

inline std::vector<std::pair<double, std::string>> by_time(const OperatorTimes& times) {
  std::vector<std::pair<double, std::string>> list;
  for (const auto& [name, time] : times) list.push_back({time.seconds, name});
  std::sort(list.rbegin(), list.rend());
  return list;
}

// The operators that took at least 1 % of `total`, largest first.
inline void print_shares(const char* what, const OperatorTimes& times, double total) {
  printf("%s by operator:", what);
  for (const auto& [time, name] : by_time(times))
    if (time >= 0.01 * total) printf("  %s %.0f %%", name.c_str(), 100 * time / total);
  printf("\n");
}

// All that were called in `steps` steps, a line each, of one step.
inline void print_operators(const char* what, const OperatorTimes& times, int steps) {
  double sum = 0;
  int64_t calls = 0;
  for (const auto& [name, time] : times) sum += time.seconds, calls += time.calls;
  printf("  %s: %lld operators, %.1f us\n", what, (long long)(calls / steps), sum / steps * 1e6);
  for (const auto& [time, name] : by_time(times)) {
    const int64_t n = times.at(name).calls;
    printf("    %-20s %5lld calls %10.1f us %5.1f %% %9.2f us each\n", name.c_str(), (long long)(n / steps),
           time / steps * 1e6, 100 * time / sum, time / double(n) * 1e6);
  }
}

}  // namespace dsa::bench
