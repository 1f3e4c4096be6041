// kernels/common/cuda_places.cuh: shared memory by address, for loops in which the compiler had rather work out a place anew
// than keep it. The emulation has the same in plain C++.
#pragma once

#include "kernels/common/cuda_intrinsics.cuh"

namespace dsa {

using SharedPlace = uint32_t;
__device__ inline SharedPlace place_of(const void* shared) {
  auto place = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("" : "+r"(place));
  return place;
}
__device__ inline uint4 load_vector(SharedPlace place) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(place));
  return v;
}
__device__ inline uint32_t load_half(SharedPlace place) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(place));
  return v;
}
__device__ inline uint32_t load_byte(SharedPlace place) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(place));
  return v;
}

// As copy_async.
__device__ inline void copy_async_to(SharedPlace place, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(global), "r"(exists ? 16 : 0)
               : "memory");
}
// The same for one aligned word, of which the first `bytes` exist.
__device__ inline void copy_word_async(SharedPlace place, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(global), "r"(bytes)
               : "memory");
}

}  // namespace dsa
