// kernels/linear/linear.cu: one block for 16 outputs, on the tensor cores; see common/products.cuh.
#include "kernels/common/products.cuh"
#include "kernels/linear/linear.h"

namespace dsa {
namespace {

constexpr int kTilesOfMany = 4, kStages = 3;  // tiles of 8 rows in a block; stretches of weights on their way

// Grid (ceil(out_dim / 16), ceil(rows / (8 * kTilesN))).
// Reads the weights once per 8 * kTilesN rows, x once per block.
template <int kTilesN, class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    linear_kernel(const __grid_constant__ LinearArgs a, const __grid_constant__ Weights w) {
  begin_kernel();
  product_rows<1, kTilesN, 3>(w, a.x, a.x_stride, a.y, a.y_stride, a.rows, a.in_dim, a.out_dim,
                              int(blockIdx.y), int(gridDim.y));
}

// Grid (ceil(out_dim / 16)). Reads the weights once.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    linear_few_rows_kernel(const __grid_constant__ LinearArgs a, const __grid_constant__ Weights w) {
  uint4* shared = dynamic_shared<uint4>();
  begin_kernel();
  few_rows<1, kStages, 3>(w, a.x, a.x_stride, a.y, a.y_stride, a.rows, a.in_dim, a.out_dim, shared);
}

template <class Weights>
void product(const LinearArgs& a, const Weights& w, Queue& queue) {
  const unsigned blocks = unsigned(ceil_div(a.out_dim, 16));
  const bool few = a.rows <= kFewRows;
  if constexpr (Weights::kPieces == 1) {
    const size_t shared = few_rows_shared_bytes<1, kStages, 3, Weights>(a.rows, a.in_dim);
    if (few && w.aligned(a.in_dim) && shared <= static_cast<CudaQueue&>(queue).device().shared_bytes_max)
      return launch(queue, blocks, kProductWarps * kWarp, shared, linear_few_rows_kernel<Weights>, a, w);
  }
  const dim3 grid(blocks, unsigned(ceil_div(a.rows, few ? kFewRows : 8 * kTilesOfMany)));
  launch(queue, grid, kProductWarps * kWarp, 0,
         few ? linear_kernel<1, Weights> : linear_kernel<kTilesOfMany, Weights>, a, w);
}

}  // namespace

void cuda::linear(const LinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product(a, Bf16Weights{static_cast<const bf16*>(a.weight), a.in_dim}, queue);
  else if (a.weight_type == DType::f8_e4m3)
    product(a, Fp8Weights{static_cast<const uint8_t*>(a.weight), a.weight_scales, a.in_dim}, queue);
  else
    product(a, F32Weights{static_cast<const float*>(a.weight), a.in_dim}, queue);
}

}  // namespace dsa
