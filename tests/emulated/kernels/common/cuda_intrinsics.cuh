// tests/emulated/kernels/common/cuda_intrinsics.cuh: stands in for kernels/common/cuda_intrinsics.cuh.
#pragma once

#include "kernels/common/numbers.h"
#include "tests/emulated/emulated.h"

namespace dsa {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulated::dynamic_shared);
}
inline void wait_for_kernel_before() {}
inline void start_next_kernel() {}

inline float bf16_half(uint32_t pair, int half) {
  return bits_to_f32(half ? pair & 0xffff0000u : pair << 16);
}

// c += a b, 16 x 16 times 16 x 8, of pairs whose halves `half_of` reads.
template <class Half>
void emulated_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Half& half_of) {
  struct Fragments {
    const uint32_t *a, *b;
  };
  const Fragments mine{a, b};
  Fragments all[32];
  const uint64_t* given = emulated::exchange(uint64_t(uintptr_t(&mine)));
  for (int i = 0; i < 32; ++i) all[i] = *reinterpret_cast<const Fragments*>(given[i]);
  const int group = emulated::lane() / 4, quad = emulated::lane() % 4;
  float result[4];
  for (int i = 0; i < 4; ++i) {
    const int row_half = i / 2, column = 2 * quad + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; ++k) {
      const uint32_t of_a = all[4 * group + k % 8 / 2].a[k / 8 * 2 + row_half],
                     of_b = all[4 * column + k % 8 / 2].b[k / 8];
      sum += double(half_of(of_a, k % 2)) * half_of(of_b, k % 2);
    }
    result[i] = float(sum);
  }
  emulated::exchange(0);  // nobody leaves while others read its registers
  for (int i = 0; i < 4; ++i) c[i] = result[i];
}
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulated_mma(c, a, b, bf16_half);
}

inline float f16_half(uint32_t pair, int half) {
  const uint32_t bits = half ? pair >> 16 : pair & 0xffff, exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(float(fraction), -24)
                                          : std::ldexp(float(fraction + 1024), int(exponent) - 25);
  return bits >> 15 ? -magnitude : magnitude;
}
inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated_mma(c, a, b, f16_half);
}
// To nearest, ties to even.
inline uint32_t f32_to_f16_bits(float x) {
  const uint32_t sign = f32_to_bits(x) >> 16 & 0x8000;
  const float magnitude = std::fabs(x);
  if (!(magnitude < 65520)) return sign | (magnitude != magnitude ? 0x7e00 : 0x7c00);
  if (magnitude < 0x1p-14f) return sign | uint32_t(std::nearbyint(magnitude * 0x1p24f));
  const uint32_t bits = f32_to_bits(magnitude);
  return sign | (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10));
}
inline uint32_t round_to_f16x2(float low, float high) {
  return f32_to_f16_bits(low) | f32_to_f16_bits(high) << 16;
}
inline float power_of_two(float x) { return std::exp2(x); }

inline uint32_t round_to_bf16x2(float low, float high) {
  return to_bf16(low).bits | uint32_t(to_bf16(high).bits) << 16;
}
inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  return round_to_bf16x2(bf16_half(a, 0) * bf16_half(b, 0), bf16_half(a, 1) * bf16_half(b, 1));
}

inline void copy_async(void* shared, const void* global, bool exists) {
  emulated::copy_later(shared, global, exists);
}
inline void commit_copies() { emulated::commit_copies(); }
template <int kLeft>
void wait_for_copies() {
  emulated::wait_for_copies(kLeft);
}

}  // namespace dsa
