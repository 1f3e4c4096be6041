// kernels/head_linear/head_linear.cu: one block for 16 outputs of a head, on the tensor cores; see common/products.cuh.
#include "kernels/common/products.cuh"
#include "kernels/head_linear/head_linear.h"

namespace dsa {
namespace {

constexpr int kTilesOfMany = 4;

// Grid (ceil(out_dim / 16), ceil(tokens / (8 * kTilesN)), heads).
template <int kTilesN, class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    head_linear_kernel(const __grid_constant__ HeadLinearArgs a, Weights w) {
  begin_kernel();
  const int h = blockIdx.z;
  w.data += h * a.weight_head_stride;
  product_rows<1, kTilesN, 3>(w, a.x + h * a.x_head_stride, a.x_token_stride, a.y + h * a.y_head_stride,
                              a.y_token_stride, a.tokens, a.in_dim, a.out_dim, int(blockIdx.y),
                              int(gridDim.y));
}

template <class W, class Weights>
void product(const HeadLinearArgs& a, Queue& queue) {
  const Weights w{static_cast<const W*>(a.weight), a.transposed ? a.out_dim : a.in_dim, a.transposed};
  const bool few = a.tokens <= kFewRows;
  const dim3 grid(unsigned(ceil_div(a.out_dim, 16)),
                  unsigned(ceil_div(a.tokens, few ? kFewRows : 8 * kTilesOfMany)), unsigned(a.heads));
  launch(queue, grid, kProductWarps * kWarp, 0,
         few ? head_linear_kernel<1, Weights> : head_linear_kernel<kTilesOfMany, Weights>, a, w);
}

}  // namespace

void cuda::head_linear(const HeadLinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product<bf16, Bf16Weights>(a, queue);
  else
    product<float, F32Weights>(a, queue);
}

}  // namespace dsa
