// kernels/linear/linear.cu: 16 outputs at a time, on the tensor cores; see common/products.cuh and common/few_rows.cuh.
// Many rows on the fast route: a kernel that rounds them to scratch memory, and a product of cuBLASLt.
#include <algorithm>

#include "kernels/common/few_rows.cuh"
#include "kernels/common/rounded.cuh"
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

void own_product(const LinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product(a, Bf16Weights{static_cast<const bf16*>(a.weight), a.in_dim}, queue);
  else if (a.weight_type == DType::f8_e4m3)
    product(a, Fp8Weights{static_cast<const uint8_t*>(a.weight), a.weight_scales, a.in_dim}, queue);
  else
    product(a, F32Weights{static_cast<const float*>(a.weight), a.in_dim}, queue);
}

// codes [rows, in_dim], scales [in_dim / 128, rows]. One warp rounds the 128 values that share a scale.
void round_rows_to_fp8(const LinearArgs& a, uint32_t* codes, float* scales, Queue& queue) {
  const int64_t tiles = a.in_dim / kFp8Block, stride = a.x_stride, rows = a.rows;
  const float* x = a.x;
  each_warp(queue, rows * tiles, [=] __device__(int64_t i, int lane) {
    const int64_t r = i / tiles, tile = i % tiles;
    const float4 v = *reinterpret_cast<const float4*>(x + r * stride + tile * kFp8Block + lane * 4);
    const float largest = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    const float scale = fmaxf(warp_max(largest) / 448, kLinearFp8ScaleMin);
    codes[i * kWarp + lane] = round_to_e4m3x4(v.x / scale, v.y / scale, v.z / scale, v.w / scale);
    if (lane == 0) scales[tile * rows + r] = scale;
  });
}

constexpr int64_t kScaleRow = 4;  // of scales of weights and of rows, in floats

// The rows of `a` that cuBLASLt multiplies, from the first on; the others are left to own_product().
int rounded_product(const LinearArgs& a, CudaQueue& queue) {
  const bool fp8 = a.weight_type == DType::f8_e4m3;
  if (a.route == Route::exact || a.weight_type == DType::f32 || a.rows < kLinearManyRows || !queue.cublas())
    return 0;
  if (fp8 && queue.device().capability != 90) return 0;  // where tiles have scales
  if (a.in_dim % (fp8 ? kFp8Block : 8) != 0 || (fp8 && a.out_dim % 16 != 0) || a.x_stride % 4 != 0 ||
      uint64_t(a.x) % 16 != 0 || uint64_t(a.weight) % 16 != 0)
    return 0;

  Scratch scratch(queue);
  const size_t workspace_bytes = cublas_workspace_bytes(queue);
  void* workspace = scratch.take<char>(int64_t(workspace_bytes));
  const int64_t tiles_in = a.in_dim / kFp8Block, tiles_out = ceil_div(a.out_dim, kFp8Block);
  const float* weight_scales = a.weight_scales;
  const int64_t padded = round_up(tiles_in, kScaleRow);
  float* padded_scales = nullptr;
  if (fp8 && padded != tiles_in) weight_scales = padded_scales = scratch.take<float>(tiles_out * padded);

  const int64_t row_bytes = fp8 ? a.in_dim + tiles_in * int64_t(sizeof(float)) : a.in_dim * 2;
  const int64_t at_once = (scratch.left() - 1024) / row_bytes / kScaleRow * kScaleRow;
  const int64_t all = fp8 ? a.rows / kScaleRow * kScaleRow : a.rows;
  if (at_once < kLinearManyRows) return 0;
  void* x = scratch.take<char>(std::min(at_once, all) * a.in_dim * (fp8 ? 1 : 2));
  float* x_scales = fp8 ? scratch.take<float>(std::min(at_once, all) * tiles_in) : nullptr;

  int64_t done = 0;
  while (done < all) {
    LinearArgs part = a;
    part.x += done * a.x_stride, part.y += done * a.y_stride;
    part.rows = int(std::min(at_once, all - done));
    const CublasProduct product{fp8 ? CublasProduct::Factors::fp8 : CublasProduct::Factors::bf16,
                                x,
                                a.weight,
                                part.y,
                                a.in_dim,
                                a.y_stride,
                                part.rows,
                                a.in_dim,
                                a.out_dim,
                                x_scales,
                                weight_scales};
    if (!queue.cublas_plans().find(product, workspace_bytes)) break;
    if (done == 0 && padded_scales)
      each(queue, tiles_out * padded, [=, from = a.weight_scales] __device__(int64_t i) {
        padded_scales[i] = i % padded < tiles_in ? from[i / padded * tiles_in + i % padded] : 0.f;
      });
    if (fp8)
      round_rows_to_fp8(part, static_cast<uint32_t*>(x), x_scales, queue);
    else
      round_rows_to_bf16(queue, part.x, a.x_stride, 0, part.rows, 1, a.in_dim, static_cast<uint4*>(x));
    run_cublas(queue, product, workspace, workspace_bytes);
    done += part.rows;
  }
  return int(done);
}

}  // namespace

void cuda::linear(const LinearArgs& a, Queue& queue) {
  LinearArgs rest = a;
  const int done = rounded_product(a, static_cast<CudaQueue&>(queue));
  rest.x += done * a.x_stride, rest.y += done * a.y_stride, rest.rows -= done;
  if (rest.rows > 0) own_product(rest, queue);
}

}  // namespace dsa
