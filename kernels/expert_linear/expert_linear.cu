// kernels/expert_linear/expert_linear.cu: one block for 16 outputs of a group, on the tensor cores; see
// common/products.cuh.
#include "kernels/common/products.cuh"
#include "kernels/expert_linear/expert_linear.h"

namespace dsa {
namespace {

// Grid (ceil(out_dim / 16), num_groups). Reads the weights of a group once per 8 * kTilesN of its rows.
template <int kTilesN, class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    expert_linear_kernel(const __grid_constant__ ExpertLinearArgs a, Weights w) {
  begin_kernel();
  const ExpertLinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  w.data = static_cast<decltype(w.data)>(group.weight);
  if constexpr (requires { w.scales; }) w.scales = group.weight_scales;
  product_rows<1, kTilesN, 3>(w, a.x + group.row_begin * a.x_stride, a.x_stride, group.y, a.y_stride,
                              group.rows, a.in_dim, a.out_dim, 0, 1);
}

template <class Weights>
void product(const ExpertLinearArgs& a, const Weights& w, Queue& queue) {
  const dim3 grid(unsigned(ceil_div(a.out_dim, 16)), unsigned(a.num_groups));
  launch(
      queue, grid, kProductWarps * kWarp, 0,
      a.rows_max > 0 && a.rows_max <= 8 ? expert_linear_kernel<1, Weights> : expert_linear_kernel<4, Weights>,
      a, w);
}

}  // namespace

void cuda::expert_linear(const ExpertLinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product(a, Bf16Weights{nullptr, a.in_dim}, queue);
  else if (a.weight_type == DType::f8_e4m3)
    product(a, Fp8Weights{nullptr, nullptr, a.in_dim}, queue);
  else
    product(a, F32Weights{nullptr, a.in_dim}, queue);
}

}  // namespace dsa
