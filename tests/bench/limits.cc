// What the machine can do at best: plain loops over memory and over registers.
#include <cstdlib>
#include <cstring>
#include <new>

#include "bench/bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dsa::bench {
namespace {

constexpr size_t kBytes = 512 << 20, kItemBytes = 1 << 20;
constexpr int64_t kRounds = 1 << 20;
constexpr int kChains = 12;  // more than latency times rate on any current core

const char* memory() {
  static char* const bytes = [] {
    char* p = static_cast<char*>(std::aligned_alloc(4096, kBytes));
    if (!p) throw std::bad_alloc();
    memset(p, 1, kBytes);
    return p;
  }();
  return bytes;
}

// Two streams a quarter apart: one alone does not keep the memory of every machine busy.
uint64_t read_plain(const char* p) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < kItemBytes / 2; i += 64)
    for (size_t stream = 0; stream < 2; ++stream) {
      uint64_t words[8];
      memcpy(words, p + stream * kItemBytes / 2 + i, 64);
      for (int j = 0; j < 8; ++j) sums[j] += words[j];
    }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void fma_avx2(int64_t rounds) {
  __m256 sums[kChains];
  for (auto& s : sums) s = _mm256_setzero_ps();
  for (int64_t i = 0; i < rounds; ++i) {
    __m256 a = _mm256_set1_ps(0.5f);
    asm volatile("" : "+x"(a));  // not a constant: nothing may be computed ahead
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm256_fmadd_ps(a, a, s);
  }
  for (auto& s : sums) asm volatile("" ::"x"(s));
}

__attribute__((target("avx512f"))) void fma_avx512(int64_t rounds) {
  __m512 sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_ps();
  for (int64_t i = 0; i < rounds; ++i) {
    __m512 a = _mm512_set1_ps(0.5f);
    asm volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm512_fmadd_ps(a, a, s);
  }
  for (auto& s : sums) asm volatile("" ::"v"(s));
}

__attribute__((target("avx512f,avx512vnni"))) void dot_avx512vnni(int64_t rounds) {
  __m512i sums[kChains];
  for (auto& s : sums) s = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; ++i) {
    __m512i a = _mm512_set1_epi32(0x01010101);
    asm volatile("" : "+v"(a));
#pragma GCC unroll 12
    for (auto& s : sums) s = _mm512_dpbusd_epi32(s, a, a);
  }
  for (auto& s : sums) asm volatile("" ::"v"(s));
}
#endif

// `operations` in one round, on every thread at once.
double rate(Queue& queue, void (*loop)(int64_t), double operations) {
  const int items = 4 * queue.threads();
  const double time = seconds([&] { queue.parallel_for(items, [&](int64_t) { loop(kRounds / 4); }); });
  return items * double(kRounds / 4) * operations / time;
}

}  // namespace

double read_bandwidth(Queue& queue) { return read_bandwidth(queue, memory(), kBytes); }

double read_bandwidth(Queue& queue, const void* data, size_t size) {
  const char* bytes = static_cast<const char*>(data);
  std::vector<uint64_t> sums(size / kItemBytes);
  const double time = seconds([&] {
    queue.parallel_for(int64_t(sums.size()),
                       [&](int64_t i) { sums[size_t(i)] = read_plain(bytes + i * kItemBytes); });
  });
  volatile uint64_t keep = 0;
  for (const uint64_t sum : sums) keep = keep + sum;
  return double(sums.size() * kItemBytes) / time;
}

double peak_f32([[maybe_unused]] Queue& queue) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return rate(queue, fma_avx512, kChains * 32.0);
  if (__builtin_cpu_supports("fma")) return rate(queue, fma_avx2, kChains * 16.0);
#endif
  return 0;
}

double peak_int8([[maybe_unused]] Queue& queue) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vnni")) return rate(queue, dot_avx512vnni, kChains * 128.0);
#endif
  return 0;
}

}  // namespace dsa::bench
