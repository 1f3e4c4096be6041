// kernels/expert_groups/expert_groups.cu: one block goes through all matrices and counts those that have rows before each.
#include "kernels/common/cuda.cuh"
#include "kernels/expert_groups/expert_groups.h"

namespace dsa {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) expert_groups_kernel(const __grid_constant__ ExpertGroupsArgs a) {
  begin_kernel();
  const int items = a.experts * a.num_products;
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
    const BlockCount filled = block_count<kThreads>(rows > 0);
    if (rows > 0) put(n + filled.before, matrix, begin, rows, y);
    n += filled.total;
  }
  for (int i = n + int(threadIdx.x); i < a.num_groups; i += kThreads) put(i, {}, 0, 0, nullptr);
}

}  // namespace

void cuda::expert_groups(const ExpertGroupsArgs& a, Queue& queue) {
  launch(queue, 1, kThreads, 0, expert_groups_kernel, a);
}

}  // namespace dsa
