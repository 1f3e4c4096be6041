// tests/emulated/kernels/common/cuda_places.cuh: stands in for kernels/common/cuda_places.cuh.
#pragma once

#include "kernels/common/cuda_intrinsics.cuh"

namespace dsa {

using SharedPlace = char*;
inline SharedPlace place_of(const void* shared) { return static_cast<char*>(const_cast<void*>(shared)); }
template <class T>
T load_value(SharedPlace place) {
  T value;
  memcpy(&value, place, sizeof value);
  return value;
}
inline uint4 load_vector(SharedPlace place) { return load_value<uint4>(place); }
inline void load_vector_if(bool exists, SharedPlace place, uint4& v) {
  if (exists) v = load_vector(place);
}
inline uint32_t load_word(SharedPlace place) { return load_value<uint32_t>(place); }
inline uint32_t load_half(SharedPlace place) { return load_value<uint16_t>(place); }

inline uint32_t load_byte(SharedPlace place) { return load_value<uint8_t>(place); }

inline uint32_t hidden(uint32_t value) { return value; }
inline void prefetch(const void*) {}

inline void copy_async_to(SharedPlace place, const void* global, bool exists) {
  copy_async(place, global, exists);
}
inline void copy_async_8_to(SharedPlace place, const void* global) {
  emulated::copy_later(place, global, true, 8);
}

inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int (&c)[4]) {
  struct Fragments {
    const uint32_t* a;
    uint32_t b[2];
  };
  const Fragments mine{a, {b0, b1}};
  Fragments all[32];
  const uint64_t* given = emulated::exchange(uint64_t(uintptr_t(&mine)));
  for (int i = 0; i < 32; ++i) all[i] = *reinterpret_cast<const Fragments*>(given[i]);
  const int group = emulated::lane() / 4, quad = emulated::lane() % 4;
  int result[4];
  for (int i = 0; i < 4; ++i) {
    result[i] = c[i];
    for (int k = 0; k < 32; ++k) {
      const int shift = k % 4 * 8, from = k % 16 / 4, half = k / 16;
      result[i] += int8_t(all[4 * group + from].a[2 * half + i / 2] >> shift) *
                   int8_t(all[4 * (2 * quad + i % 2) + from].b[half] >> shift);
    }
  }
  emulated::exchange(0);  // nobody leaves while others read its registers
  for (int i = 0; i < 4; ++i) d[i] = result[i];
}
inline uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> 4 * i, byte = uint32_t(bytes >> 8 * (nibble & 7)) & 0xff;
    result |= (nibble & 8 ? (byte >> 7 ? 0xff : 0) : byte) << 8 * i;
  }
  return result;
}

}  // namespace dsa
