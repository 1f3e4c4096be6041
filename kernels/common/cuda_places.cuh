// kernels/common/cuda_places.cuh: shared memory by address, for loops in which the compiler had rather work out a place anew
// than keep it, and instructions on bytes. The emulation has the same in plain C++.
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
// Leaves v alone if there is nothing to load.
__device__ inline void load_vector_if(bool exists, SharedPlace place, uint4& v) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "r"(place), "r"(uint32_t(exists)));
}
__device__ inline uint32_t load_word(SharedPlace place) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(place));
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

// A value that the compiler does not know: a constant that is to stay in a register.
__device__ inline uint32_t hidden(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Brings what lies there nearer.
__device__ inline void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// As copy_async.
__device__ inline void copy_async_to(SharedPlace place, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(global), "r"(exists ? 16 : 0)
               : "memory");
}
// The same of 8 bytes that exist.
__device__ inline void copy_async_8_to(SharedPlace place, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(place), "l"(global) : "memory");
}

// d = a b + c of bytes with a sign: 16 x 32 times 32 x 8, sums of 32 bits. Of a, lane 4 g + q holds columns 4 q .. 4 q + 3 of
// rows g and g + 8, then columns 4 q + 16 .. 4 q + 19 of both; of b, rows 4 q .. 4 q + 3, then 4 q + 16 .. 4 q + 19 of
// column g; of c and d what mma has of c.
__device__ inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]),
        "r"(c[3]));
}
// Byte i is what the lower three bits of nibble i of the selector say: a byte of low, then of high. If the fourth bit is set it
// is the sign of that byte eight times.
__device__ inline uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
  return bytes;
}

}  // namespace dsa
