// kernels/mxfp4_linear/mxfp4_linear.cu: outputs of a group on the tensor cores; see common/mxfp4_rows.cuh and
// common/mxfp4_row.cuh for the fast route, common/products.cuh and common/few_rows.cuh for the exact one.
#include <algorithm>

#include "kernels/common/mxfp4_row.cuh"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {
namespace {

// Grid (ceil(out_dim / 16), num_groups). Reads the weights of a group once per 8 * kTilesN of its rows.
template <int kTilesN>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    mxfp4_linear_kernel(const __grid_constant__ Mxfp4LinearArgs a) {
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  product_rows<1, kTilesN, 3>(Mxfp4Weights{group.blocks, group.scales, a.in_dim},
                              a.x + group.row_begin * a.x_stride, a.x_stride, group.y, a.y_stride, group.rows,
                              a.in_dim, a.out_dim, 0, 1);
}

// Rows [begin, begin + rows) of a group.
template <class Product>
__device__ void multiply_rows(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& group, int begin, int rows,
                              int team) {
  const Mxfp4Weights w{group.blocks, group.scales, a.in_dim};
  const auto locate = [&](int i) { return FewRowsTile<Mxfp4Weights>{w, 16 * i, a.out_dim, 0}; };
  FewRows<Product, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, rows, team,
                                             (a.out_dim + 15) / 16, int(blockIdx.x), int(gridDim.x), locate);
  product.start();
  for (int r = 0; r < rows; ++r) {
    const float* x = a.x + (group.row_begin + begin + r) * a.x_stride;
    keep_row<Product>(product.kept(r), a.in_dim, [&](int k, float(&value)[8]) { read_octet(x, k, value); });
  }
  __syncthreads();
  product.run(
      [&](const auto&, int, int r, int o, float sum) { group.y[(begin + r) * a.y_stride + o] = sum; });
  __syncthreads();
}

// Row `begin` of a group whose stretches and tiles are whole.
__device__ void multiply_row(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& group, int begin) {
  const auto number = [&](int i) {  // of tile i of this block
    return int(blockIdx.x) + i * int(gridDim.x);
  };
  const auto locate = [&](int i) { return mxfp4_tile(group.blocks, group.scales, a.in_dim, number(i)); };
  const int tiles = (a.out_dim / 16 - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  Mxfp4Row<false, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, 1, tiles, locate);
  const float* x = a.x + (group.row_begin + begin) * a.x_stride;
  keep_row_and_start<Mxfp4Product<1>>(
      product.kept(0), a.in_dim, [&](int k, float(&value)[8]) { read_octet(x, k, value); },
      [&] { product.start(); });
  __syncthreads();
  product.run([&](int i, int o, float sum) { group.y[begin * a.y_stride + number(i) * 16 + o] = sum; });
  __syncthreads();
}

// Grid (some blocks for each group, num_groups). Reads the weights of a group once per `at_once` of its rows. kWhole:
// one at a time, and its stretches and tiles are whole.
template <class Product, bool kWhole>
__global__ void __launch_bounds__(kProductWarps* kWarp, Product::kBlocks)
    mxfp4_few_rows_kernel(const __grid_constant__ Mxfp4LinearArgs a, int at_once, int team) {
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  for (int begin = 0; begin < group.rows; begin += at_once) {
    const int rows = min(at_once, group.rows - begin);
    if constexpr (kWhole) {
      if (aligned_scales(group.scales)) {
        multiply_row(a, group, begin);
        continue;
      }
    } else if constexpr (Product::kMost > 1) {  // most groups have few: those have code of their own
      if (rows == 1) {
        multiply_rows<Mxfp4Product<1>>(a, group, begin, rows, team);
        continue;
      }
    }
    multiply_rows<Product>(a, group, begin, rows, team);
  }
}

constexpr int kExactFewRowsMax = 64;         // of all groups, or of a group where that is known
constexpr size_t kKeptBytesMax = 44 * 1024;  // of rows in shared memory, so that two blocks fit

template <class Product, bool kWhole>
void few_rows(const Mxfp4LinearArgs& a, int rows_max, Queue& queue) {
  const int at_once = std::clamp(int(kKeptBytesMax / Product::kept_bytes(a.in_dim)), 1, rows_max);
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const size_t of_row = kWhole ? mxfp4_row_bytes(1, a.in_dim) : 0,
               most = std::max(few_rows_bytes<Product>(at_once, at_once, a.in_dim, 1), of_row);
  const int64_t tiles = ceil_div(a.out_dim, 16), fair = blocks_at_once<Product>(device, most) / a.num_groups,
                blocks = fair > 0 ? fair : 4;  // of many groups, some are empty and others large
  const int team = best_team<Mxfp4Weights>(a.in_dim, tiles, blocks),
            teams = kWhole ? mxfp4_row_teams(a.in_dim) : kProductWarps / team;
  launch(queue, dim3(unsigned(std::min(ceil_div(tiles, teams), blocks)), unsigned(a.num_groups)),
         kProductWarps * kWarp, std::max(few_rows_bytes<Product>(at_once, at_once, a.in_dim, team), of_row),
         mxfp4_few_rows_kernel<Product, kWhole>, a, at_once, team);
}

}  // namespace

void cuda::mxfp4_linear(const Mxfp4LinearArgs& a, Queue& queue) {
  if (a.rows == 0 || a.num_groups == 0) return;
  const int rows_of_group = std::min(a.rows, a.rows_max > 0 ? a.rows_max : a.rows),
            rows_max = std::min(rows_of_group, kFewRows);
  if (a.route != Route::exact)
    return rows_max > 1 ? few_rows<Mxfp4Product<kFewRows>, false>(a, rows_max, queue)
           : whole_mxfp4_tiles(a.in_dim, a.out_dim) ? few_rows<Mxfp4Product<1>, true>(a, rows_max, queue)
                                                    : few_rows<Mxfp4Product<1>, false>(a, rows_max, queue);
  using Exact = PieceProduct<Mxfp4Weights, 3>;
  if (rows_of_group <= kExactFewRowsMax &&
      few_rows_bytes<Exact>(1, a.in_dim) <= static_cast<CudaQueue&>(queue).device().shared_bytes_max)
    return few_rows<Exact, false>(a, rows_max, queue);
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, 16)), unsigned(a.num_groups)), kProductWarps * kWarp, 0,
         mxfp4_linear_kernel<4>, a);
}

}  // namespace dsa
