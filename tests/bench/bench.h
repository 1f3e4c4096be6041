// tests/bench/bench.h: dsa_bench, one file per subcommand, and what they share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/common/queue.h"

namespace dsa::bench {

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

}  // namespace dsa::bench
