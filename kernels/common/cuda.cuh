// kernels/common/cuda.cuh: how a CUDA operator starts its kernels, and the warp helpers they share.
#pragma once

#include <utility>

#include "kernels/common/cuda_intrinsics.cuh"
#include "kernels/common/cuda_queue.h"
#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kWarp = 32;                   // lanes
constexpr unsigned kAllLanes = 0xffffffff;  // of a warp

// The first line of every kernel. Its blocks may start while the kernel before still runs (programmatic dependent
// launch); they wait here until all its writes are visible, and let the kernel after them do the same.
__device__ inline void begin_kernel() {
  wait_for_kernel_before();
  start_next_kernel();
}

// kernel<<<grid, block, shared>>>(args...) on the stream of the queue; nothing if the grid is empty.
template <class... Parameters, class... Args>
void launch(Queue& queue, dim3 grid, dim3 block, size_t shared, void (*kernel)(Parameters...),
            Args&&... args) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared > 48 * 1024)
    cuda_queue.note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
  config.stream = cuda_queue.stream();
  config.attrs = &overlap, config.numAttrs = cuda_queue.take_overlap() ? 1 : 0;
  cuda_queue.note(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Blocks for `wanted` pieces of work that a kernel may also take in a loop: enough to fill the device.
inline unsigned blocks_for(Queue& queue, int64_t wanted) {
  const int64_t full = int64_t(static_cast<CudaQueue&>(queue).device().multiprocessors) * 16;
  return unsigned(wanted < full ? wanted : full);
}

template <class F>
__global__ void __launch_bounds__(256) each_kernel(int64_t n, const __grid_constant__ F f) {
  begin_kernel();
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) f(i);
}
template <class F>
__global__ void __launch_bounds__(256) each_warp_kernel(int64_t n, const __grid_constant__ F f) {
  begin_kernel();
  for (int64_t i = blockIdx.x * 8ll + threadIdx.x / kWarp; i < n; i += gridDim.x * 8ll)
    f(i, int(threadIdx.x % kWarp));
}
template <class F>
__global__ void __launch_bounds__(1024) each_block_kernel(const __grid_constant__ F f) {
  begin_kernel();
  f(int64_t(blockIdx.x));
}

// f(i) for every i in [0, n), one thread each; f(i, lane), one warp each; f(i), one block of `threads` each.
template <class F>
void each(Queue& queue, int64_t n, const F& f) {
  launch(queue, blocks_for(queue, ceil_div(n, 256)), 256, 0, each_kernel<F>, n, f);
}
template <class F>
void each_warp(Queue& queue, int64_t n, const F& f) {
  launch(queue, blocks_for(queue, ceil_div(n, 8)), 256, 0, each_warp_kernel<F>, n, f);
}
template <class F>
void each_block(Queue& queue, int64_t n, int threads, const F& f, size_t shared = 0) {
  launch(queue, unsigned(n), unsigned(threads), shared, each_block_kernel<F>, f);
}
// Threads of a block that shares one row: whole warps, no more than the row has values.
inline int threads_for(int64_t values) {
  return int(values >= 1024 ? 1024 : ceil_div(values, kWarp) * kWarp);
}

__device__ inline float warp_sum(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}
// The sum over all threads of the block, to each of them. All must call it.
__device__ inline float block_sum(float x) {
  __shared__ float sums[kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = (blockDim.x + kWarp - 1) / kWarp;
  x = warp_sum(x);
  __syncthreads();  // those of the call before have been read
  if (lane == 0) sums[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? sums[lane] : 0.f);
}

// Of the threads of a block for which `taken` holds: those before this one, and all of them. All must call it.
struct BlockCount {
  int before, total;
};
template <int kThreads>
__device__ BlockCount block_count(bool taken) {
  __shared__ int counts[kThreads / kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const unsigned lanes = __ballot_sync(kAllLanes, taken);
  __syncthreads();  // those of the call before have been read
  if (lane == 0) counts[warp] = __popc(lanes);
  __syncthreads();
  BlockCount count = {__popc(lanes & ((1u << lane) - 1)), 0};
  for (int i = 0; i < kThreads / kWarp; ++i) {
    count.before += i < warp ? counts[i] : 0;
    count.total += counts[i];
  }
  return count;
}

__device__ inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

}  // namespace dsa
