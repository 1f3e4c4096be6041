// tests/emulated/kernels/common/cuda_places.cuh: stands in for kernels/common/cuda_places.cuh. Words are there at once.
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
inline uint32_t load_half(SharedPlace place) { return load_value<uint16_t>(place); }
inline uint32_t load_byte(SharedPlace place) { return load_value<uint8_t>(place); }

inline void copy_async_to(SharedPlace place, const void* global, bool exists) {
  copy_async(place, global, exists);
}
inline void copy_word_async(SharedPlace place, const void* global, int bytes) {
  memset(place, 0, 4);
  if (bytes > 0) memcpy(place, global, size_t(bytes));
}

}  // namespace dsa
