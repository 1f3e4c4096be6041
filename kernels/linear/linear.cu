// kernels/linear/linear.cu: 16 outputs at a time, on the tensor cores; see common/products.cuh and common/few_rows.cuh.
#include <algorithm>

#include "kernels/common/few_rows.cuh"
#include "kernels/linear/linear.h"

namespace dsa {
namespace {

constexpr int kTilesOfMany = 4;  // tiles of 8 rows in a block

// Grid (ceil(out_dim / 16), ceil(rows / (8 * kTilesN))).
// Reads the weights once per 8 * kTilesN rows, x once per block.
template <int kTilesN, class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    linear_kernel(const __grid_constant__ LinearArgs a, const __grid_constant__ Weights w) {
  begin_kernel();
  product_rows<1, kTilesN, 3>(w, a.x, a.x_stride, a.y, a.y_stride, a.rows, a.in_dim, a.out_dim,
                              int(blockIdx.y), int(gridDim.y));
}

// Grid: two blocks a multiprocessor, or as many as there are tiles. Reads the weights once.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    linear_few_rows_kernel(const __grid_constant__ LinearArgs a, const __grid_constant__ Weights w) {
  start_next_kernel();
  const auto locate = [&](int i) { return FewRowsTile<Weights>{w, 16 * i, a.out_dim, 0}; };
  FewRows<Weights, 3, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, a.rows,
                                                team_size(a.in_dim), (a.out_dim + 15) / 16, int(blockIdx.x),
                                                int(gridDim.x), locate);
  product.start();
  wait_for_kernel_before();
  for (int r = 0; r < a.rows; ++r)
    keep_row<Weights, 3>(product.kept(r), a.in_dim,
                         [&](int k, float(&value)[8]) { read_octet(a.x + r * a.x_stride, k, value); });
  __syncthreads();
  product.run([&](const auto&, int, int r, int o, float sum) { a.y[r * a.y_stride + o] = sum; });
}

template <class Weights>
void product(const LinearArgs& a, const Weights& w, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const bool few = a.rows <= kFewRows;
  const size_t shared = few_rows_bytes<Weights, 3>(a.rows, a.rows, a.in_dim);
  if (few && a.in_dim % 8 == 0 && w.aligned(a.in_dim) && shared <= device.shared_bytes_max) {
    const int64_t rounds = ceil_div(ceil_div(a.out_dim, 16), kProductWarps / team_size(a.in_dim));
    return launch(queue, unsigned(std::min<int64_t>(rounds, 2 * device.multiprocessors)),
                  kProductWarps * kWarp, shared, linear_few_rows_kernel<Weights>, a, w);
  }
  const dim3 grid(unsigned(ceil_div(a.out_dim, 16)),
                  unsigned(ceil_div(a.rows, few ? kFewRows : 8 * kTilesOfMany)));
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
