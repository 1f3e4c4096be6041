// tests/support/values.h: uneven random inputs, poisoned outputs and one measure of error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/numbers.h"
#include "kernels/kernel_table.h"

namespace dsa::test {

using Values = std::vector<float>;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  float normal() { return std::normal_distribution<float>()(engine_); }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  int64_t integer(int64_t low, int64_t high) {  // both included
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  Values normals(size_t n, float scale = 1) {
    Values values(n);
    for (float& v : values) v = scale * normal();
    return values;
  }
  std::vector<bf16> bf16_normals(size_t n, float scale = 1) {
    std::vector<bf16> values(n);
    for (bf16& v : values) v = to_bf16(scale * normal());
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

// A buffer that the code under test must fill: every value starts as NaN.
inline Values poisoned(size_t n) { return Values(n, std::numeric_limits<float>::quiet_NaN()); }

// What is left of a value that is cut into two pieces of bf16: 16 bits of its fraction at least.
inline float two_pieces(float value) {
  const auto cut = [](float v) { return bits_to_f32(f32_to_bits(v) & 0xffff0000u); };
  return cut(value) + cut(value - cut(value));
}

// Largest difference over the largest magnitude of `expected`; infinite if NaN or infinities differ.
inline double relative_error(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, magnitude = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    if (actual[i] == expected[i]) continue;
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i]))
      return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(double(actual[i]) - expected[i]));
  }
  for (float v : expected)
    if (std::isfinite(v)) magnitude = std::max(magnitude, std::abs(double(v)));
  return magnitude > 0 ? difference / magnitude : difference;
}

// The operators of the GPU in the program that tests them, on memory that both sides can reach; else null.
const KernelVariant* device_kernels();
// Whether those under test can read memory that was mapped rather than allocated, such as FarPages.
bool reaches_far_pages();

// The tables under test: all of this machine, the reference first, or that of the GPU.
inline std::vector<KernelVariant> kernel_variants() {
  return device_kernels() ? std::vector{*device_kernels()} : cpu_kernel_variants();
}
// The table under test of operators that have one version for all CPUs.
inline const KernelTable& plain_kernels() {
  return device_kernels() ? device_kernels()->table : reference_kernels();
}

// One implementation of an operator, with the name of its variant.
template <class Args>
struct Variant {
  std::string name;
  void (*run)(const Args&, Queue&);
};

// The distinct implementations of one operator under test, the reference left out.
template <class Args>
std::vector<Variant<Args>> variants(void (*KernelTable::*member)(const Args&, Queue&)) {
  std::vector<Variant<Args>> found;
  auto previous = reference_kernels().*member;
  for (const KernelVariant& variant : kernel_variants()) {
    const auto run = variant.table.*member;
    if (run != previous) found.push_back({variant.name, run});
    previous = run;
  }
  return found;
}

// The same, and the reference first unless a GPU is tested.
template <class Args>
std::vector<Variant<Args>> implementations(void (*KernelTable::*member)(const Args&, Queue&)) {
  std::vector<Variant<Args>> found = variants(member);
  if (!device_kernels()) found.insert(found.begin(), {"ref", reference_kernels().*member});
  return found;
}

// Equal in every bit, NaN included.
inline bool same_bits(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return f32_to_bits(x) == f32_to_bits(y); });
}

// Values [i * size, (i + 1) * size).
inline Values part(const Values& values, size_t i, size_t size) {
  return Values(values.begin() + i * size, values.begin() + (i + 1) * size);
}

}  // namespace dsa::test
