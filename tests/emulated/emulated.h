// tests/emulated/emulated.h: CUDA C++ for a compiler that knows none, included before every .cu file. Kernels run on the
// CPU, block after block; the threads of a block are fibers that meet at its barriers. A barrier that some threads of a
// warp or of a block miss ends the launch with an error.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)
#define __grid_constant__

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

extern dim3 threadIdx, blockIdx, gridDim, blockDim;  // of the fiber that runs

namespace emulated {

extern void* dynamic_shared;

// Runs `body` as every thread of every block. False if a barrier was missed.
bool run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

// Gives `value` to the other lanes of the warp; returns those of all 32, zero where a lane has ended.
const uint64_t* exchange(uint64_t value);
unsigned live_lanes();  // of the last exchange
void wait_for_block();
bool any_of_block(bool value);

// Copies that are on their way: they are made when the thread waits for them.
void copy_later(void* to, const void* from, bool exists, int bytes = 16);
void commit_copies();
void wait_for_copies(int left);

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline int lane() { return int((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32); }

}  // namespace emulated

inline void __syncthreads() { emulated::wait_for_block(); }
inline int __syncthreads_or(int value) { return emulated::any_of_block(value != 0); }
inline void __syncwarp() { emulated::exchange(0); }
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return emulated::from_bits<T>(emulated::exchange(emulated::to_bits(value))[from & 31]);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  const int from = emulated::lane() ^ lanes;
  return emulated::from_bits<T>(emulated::exchange(emulated::to_bits(value))[from & 31]);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int lanes) {
  const int from = emulated::lane() - lanes;
  const uint64_t* all = emulated::exchange(emulated::to_bits(value));
  return from < 0 ? value : emulated::from_bits<T>(all[from]);
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const uint64_t* all = emulated::exchange(value);
  unsigned lanes = 0;
  for (int i = 0; i < 32; ++i) lanes |= unsigned(all[i] != 0) << i;
  return lanes;
}
template <class F>
int emulated_reduce(int value, const F& f) {
  const uint64_t* all = emulated::exchange(emulated::to_bits(value));
  const unsigned live = emulated::live_lanes();
  int result = value;
  for (int i = 0; i < 32; ++i)
    if (live >> i & 1) result = i == emulated::lane() ? result : f(result, emulated::from_bits<int>(all[i]));
  return result;
}
inline int __reduce_add_sync(unsigned, int value) {
  return emulated_reduce(value, [](int a, int b) { return a + b; });
}
inline int __reduce_min_sync(unsigned, int value) {
  return emulated_reduce(value, [](int a, int b) { return a < b ? a : b; });
}
inline int __reduce_max_sync(unsigned, int value) {
  return emulated_reduce(value, [](int a, int b) { return a > b ? a : b; });
}
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  __extension__ using uint128 = unsigned __int128;
  return uint64_t(uint128(a) * b >> 64);
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) result |= uint32_t(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline int __float2int_rn(float x) { return !(std::fabs(x) < 0x1p31f) ? 0 : int(std::nearbyint(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return float(1 / std::sqrt(double(x))); }
using std::isfinite;
template <class A, class B>
auto min(A a, B b) {
  return a < b ? a : b;
}
template <class A, class B>
auto max(A a, B b) {
  return a < b ? b : a;
}
