// kernels/add_bias/add_bias.cu: one block a row, which finds its group by halving.
#include "kernels/add_bias/add_bias.h"
#include "kernels/common/cuda.cuh"

namespace dsa {
namespace {

// The group of row r, or -1 if it is in none.
__device__ int group_of(const AddBiasArgs& a, int64_t r) {
  if (a.offsets == nullptr) return 0;
  int low = 0, high = a.groups;  // offsets[low] <= r < offsets[high]
  if (r < a.offsets[low] || r >= a.offsets[high]) return -1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (a.offsets[middle] <= r ? low : high) = middle;
  }
  return low;
}

template <class B>
void add_rows(const AddBiasArgs& a, Queue& queue) {
  each_block(queue, a.rows, threads_for(int64_t(a.parts) * a.dim), [a] __device__(int64_t r) {
    const int group = group_of(a, r);
    if (group < 0) return;
    const B* bias = static_cast<const B*>(a.bias) + int64_t(group) * a.parts * a.dim;
    for (int i = 0; i < a.parts; ++i, bias += a.dim) {
      float* y = a.y + r * a.row_stride + i * a.part_stride;
      for (int d = threadIdx.x; d < a.dim; d += blockDim.x) y[d] += to_f32(bias[d]);
    }
  });
}

}  // namespace

void cuda::add_bias(const AddBiasArgs& a, Queue& queue) {
  a.bias_type == DType::bf16 ? add_rows<bf16>(a, queue) : add_rows<float>(a, queue);
}

}  // namespace dsa
