// kernels/common/cuda_word_copy.cuh: copy_async of cuda_intrinsics.cuh for words. The emulation has the same in plain C++.
#pragma once

#include "kernels/common/cuda_intrinsics.cuh"

namespace dsa {

// Copies one aligned word to shared memory while the thread goes on, of which the first `bytes` exist; zeros behind them.
__device__ inline void copy_word_async(void* shared, const void* global, int bytes) {
  const auto address = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(global), "r"(bytes)
               : "memory");
}

}  // namespace dsa
