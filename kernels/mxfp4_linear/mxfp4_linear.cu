// kernels/mxfp4_linear/mxfp4_linear.cu: outputs of a group on the tensor cores; see common/products.cuh and
// common/few_rows.cuh. The fast route rounds activations to bf16, which is closer to them than blocks of int8.
#include <algorithm>

#include "kernels/common/few_rows.cuh"
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

// Grid (some blocks for each group, num_groups). Reads the weights of a group once per `at_once` of its rows.
template <int kPiecesX>
__global__ void __launch_bounds__(kProductWarps* kWarp, kPiecesX == 1 ? 3 : 2)
    mxfp4_few_rows_kernel(const __grid_constant__ Mxfp4LinearArgs a, int at_once) {
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  const Mxfp4Weights w{group.blocks, group.scales, a.in_dim};
  const auto locate = [&](int i) { return FewRowsTile<Mxfp4Weights>{w, 16 * i, a.out_dim, 0}; };
  for (int begin = 0; begin < group.rows; begin += at_once) {
    FewRows<Mxfp4Weights, kPiecesX, decltype(locate)> product(
        dynamic_shared<uint4>(), a.in_dim, min(at_once, group.rows - begin), team_size(a.in_dim),
        (a.out_dim + 15) / 16, int(blockIdx.x), int(gridDim.x), locate);
    product.start();
    for (int r = 0; r < at_once && begin + r < group.rows; ++r) {
      const float* x = a.x + (group.row_begin + begin + r) * a.x_stride;
      keep_row<Mxfp4Weights, kPiecesX>(product.kept(r), a.in_dim,
                                       [&](int k, float(&value)[8]) { read_octet(x, k, value); });
    }
    __syncthreads();
    product.run(
        [&](const auto&, int, int r, int o, float sum) { group.y[(begin + r) * a.y_stride + o] = sum; });
    __syncthreads();
  }
}

constexpr int kFewRowsMax = 64;              // of all groups, or of a group where that is known
constexpr size_t kKeptBytesMax = 48 * 1024;  // of rows in shared memory, so that several blocks fit

template <int kPiecesX>
void few_rows(const Mxfp4LinearArgs& a, Queue& queue) {
  const int rows_max = std::min(a.rows_max > 0 ? a.rows_max : a.rows, kFewRows);
  const int at_once = std::clamp(int(kKeptBytesMax / kept_bytes<kPiecesX>(1, a.in_dim)), 1, rows_max);
  const int64_t rounds = ceil_div(ceil_div(a.out_dim, 16), kProductWarps / team_size(a.in_dim));
  const int64_t at_a_time = (kPiecesX == 1 ? 3 : 2) * static_cast<CudaQueue&>(queue).device().multiprocessors,
                blocks = std::max<int64_t>(at_a_time / a.num_groups, 1);
  launch(queue, dim3(unsigned(std::min(rounds, blocks)), unsigned(a.num_groups)), kProductWarps * kWarp,
         few_rows_bytes<Mxfp4Weights, kPiecesX>(at_once, at_once, a.in_dim), mxfp4_few_rows_kernel<kPiecesX>,
         a, at_once);
}

}  // namespace

void cuda::mxfp4_linear(const Mxfp4LinearArgs& a, Queue& queue) {
  if (a.rows == 0 || a.num_groups == 0) return;
  const bool exact = a.route == Route::exact;
  const size_t shared = exact ? few_rows_bytes<Mxfp4Weights, 3>(1, 1, a.in_dim)
                              : few_rows_bytes<Mxfp4Weights, 1>(1, 1, a.in_dim);
  if (std::min(a.rows, a.rows_max > 0 ? a.rows_max : a.rows) <= kFewRowsMax &&
      shared <= static_cast<CudaQueue&>(queue).device().shared_bytes_max)
    return exact ? few_rows<3>(a, queue) : few_rows<1>(a, queue);
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, 16)), unsigned(a.num_groups)), kProductWarps * kWarp, 0,
         exact ? mxfp4_linear_kernel<4, 3> : mxfp4_linear_kernel<4, 1>, a);
}

}  // namespace dsa
