// kernels/common/cluster_sm90.cuh: blocks of one cluster, which read each other's shared memory.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ inline uint32_t address_of(const void* shared) {
  return uint32_t(__cvta_generic_to_shared(shared));
}
// All threads of all blocks; what they wrote before is visible afterwards.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same without showing anything: nobody leaves before all have read what they need.
__device__ inline void leave_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Where the same variable of another block of the cluster lies.
__device__ inline uint32_t address_in(const void* shared, int block) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address_of(shared)), "r"(block));
  return address;
}
__device__ inline int2 load_int2(uint32_t address) {
  int2 v;
  asm volatile("ld.shared::cluster.v2.s32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ inline float2 load_float2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ inline float4 load_float4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
#endif

// launch() in clusters of `blocks` consecutive blocks, which divides grid.x.
template <class... Parameters, class... Args>
void launch_clusters(Queue& queue, dim3 grid, int blocks, dim3 block, size_t shared,
                     void (*kernel)(Parameters...), Args&&... args) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared > 16 * 1024)  // with what the kernel declares it may be more than 48 KiB
    cuda_queue.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
  config.stream = cuda_queue.stream();
  config.attrs = attributes, config.numAttrs = 2;
  cuda_queue.note(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace dsa
