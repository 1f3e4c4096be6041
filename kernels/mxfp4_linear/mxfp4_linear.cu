// kernels/mxfp4_linear/mxfp4_linear.cu: outputs of a group on the tensor cores; see common/products.cuh. The fast route
// rounds activations to bf16, which is closer to them than blocks of int8.
#include "kernels/common/products.cuh"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {
namespace {

// Grid (ceil(out_dim / 16), num_groups). Reads the weights of a group once per 8 * kTilesN of its rows.
template <int kTilesN, int kPiecesX>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    mxfp4_linear_kernel(const __grid_constant__ Mxfp4LinearArgs a) {
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  product_rows<1, kTilesN, kPiecesX>(Mxfp4Weights{group.blocks, group.scales, a.in_dim},
                                     a.x + group.row_begin * a.x_stride, a.x_stride, group.y, a.y_stride,
                                     group.rows, a.in_dim, a.out_dim, 0, 1);
}

constexpr int kTilesM = 2, kStages = 4;

// Grid (ceil(out_dim / (16 * kTilesM)), num_groups). Reads the weights of a group once per 8 of its rows.
template <int kPiecesX>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    mxfp4_few_rows_kernel(const __grid_constant__ Mxfp4LinearArgs a) {
  uint4* shared = dynamic_shared<uint4>();
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  few_rows<kTilesM, kStages, kPiecesX>(Mxfp4Weights{group.blocks, group.scales, a.in_dim},
                                       a.x + group.row_begin * a.x_stride, a.x_stride, group.y, a.y_stride,
                                       group.rows, a.in_dim, a.out_dim, shared);
}

constexpr int kFewRowsMax = 64;  // of all groups

}  // namespace

void cuda::mxfp4_linear(const Mxfp4LinearArgs& a, Queue& queue) {
  const bool few = a.rows <= kFewRowsMax, exact = a.route == Route::exact;
  const size_t shared = exact ? few_rows_shared_bytes<kTilesM, kStages, 3, Mxfp4Weights>(a.rows, a.in_dim)
                              : few_rows_shared_bytes<kTilesM, kStages, 1, Mxfp4Weights>(a.rows, a.in_dim);
  if (few && shared <= static_cast<CudaQueue&>(queue).device().shared_bytes_max)
    launch(queue, dim3(unsigned(ceil_div(a.out_dim, 16 * kTilesM)), unsigned(a.num_groups)),
           kProductWarps * kWarp, shared, exact ? mxfp4_few_rows_kernel<3> : mxfp4_few_rows_kernel<1>, a);
  else
    launch(queue, dim3(unsigned(ceil_div(a.out_dim, 16)), unsigned(a.num_groups)), kProductWarps * kWarp, 0,
           exact ? (few ? mxfp4_linear_kernel<1, 3> : mxfp4_linear_kernel<4, 3>)
                 : (few ? mxfp4_linear_kernel<1, 1> : mxfp4_linear_kernel<4, 1>),
           a);
}

}  // namespace dsa
