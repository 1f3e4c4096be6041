// kernels/expert_groups/expert_groups.cu: one block goes through all matrices and counts those that have rows before each.
#include "kernels/common/cuda.cuh"
#include "kernels/expert_groups/expert_groups.h"

namespace dsa {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) expert_groups_kernel(const __grid_constant__ ExpertGroupsArgs a) {
  begin_kernel();
  __shared__ int counts[kThreads / kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, items = a.experts * a.num_products;
  const auto put = [&](int n, const ExpertMatrix& matrix, int begin, int rows, float* y) {
    if (n >= a.num_groups) return;
    if (a.mxfp4 != nullptr)
      a.mxfp4[n] = {static_cast<const uint8_t*>(matrix.data), matrix.scales, begin, rows, y};
    else
      a.linear[n] = {matrix.data, begin, rows, y, matrix.block_scales};
  };

  int n = 0;
  for (int first = 0; first < items; first += kThreads) {
    const int item = first + int(threadIdx.x), e = item / a.num_products;
    ExpertMatrix matrix;
    int begin = 0, rows = 0;
    float* y = nullptr;
    if (item < items) {
      const ExpertGroupsArgs::Product& product = a.products[item % a.num_products];
      matrix = product.matrices[e];
      begin = a.offsets[e];
      rows = matrix.type == a.type ? a.offsets[e + 1] - begin : 0;
      y = product.y + begin * a.y_stride;
    }
    const unsigned taken = __ballot_sync(kAllLanes, rows > 0);
    if (lane == 0) counts[warp] = __popc(taken);
    __syncthreads();
    int before = __popc(taken & ((1u << lane) - 1)), total = 0;
    for (int i = 0; i < kThreads / kWarp; ++i) {
      before += i < warp ? counts[i] : 0;
      total += counts[i];
    }
    if (rows > 0) put(n + before, matrix, begin, rows, y);
    n += total;
    __syncthreads();
  }
  for (int i = n + int(threadIdx.x); i < a.num_groups; i += kThreads) put(i, {}, 0, 0, nullptr);
}

}  // namespace

void cuda::expert_groups(const ExpertGroupsArgs& a, Queue& queue) {
  launch(queue, 1, kThreads, 0, expert_groups_kernel, a);
}

}  // namespace dsa
