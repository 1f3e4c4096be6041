// kernels/common/hopper.cuh: the instructions of Hopper that its kernels share: barriers in shared memory, warpgroups and
// their registers, and the order of products on the tensor cores.
#pragma once

#include "kernels/common/cluster_sm90.cuh"
#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kGroupThreads = 128;  // of a warpgroup

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Barriers: a phase ends when `count` have arrived. Phases have the parities 0, 1, 0, ...; wait() returns when the last
// phase of a parity is over, at once for 1 in the beginning.
__device__ inline void init_barrier(uint64_t& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&barrier)), "r"(count) : "memory");
}
// Others may use the barriers that the thread made once they have met it.
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(&barrier)) : "memory");
}
// Arrives once the copies of the thread are there.
__device__ inline void arrive_with_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)) : "memory");
}
__device__ inline void wait(uint64_t& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(address_of(&barrier)),
      "r"(parity)
      : "memory");
}
// Threads of the block that meet; `id` from 1 on.
__device__ inline void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The warpgroup of the thread, in a way that shows the compiler that a warp agrees: addresses of operands then need no
// vector registers.
__device__ inline int warpgroup() { return __shfl_sync(kAllLanes, int(threadIdx.x) / kGroupThreads, 0); }
// A warpgroup has kRegisters a thread from now on, fewer or more than before.
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// What threads wrote to shared memory becomes visible to the products that follow, of the threads that the writers meet
// at a barrier afterwards.
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_multiply() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all but the last kLeft groups are done.
template <int kLeft = 0>
__device__ void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Between a wait and the use of what it waited for, so that the compiler does not read d before.
template <int kCount>
__device__ void take_product(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
#endif

}  // namespace dsa
