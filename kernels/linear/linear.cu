// kernels/linear/linear.cu: 16 outputs at a time, on the tensor cores; see common/products.cuh and common/few_rows.cuh.
// Many rows on the fast route: a kernel that cuts them into pieces in scratch memory, and a product of cuBLASLt for each.
#include <algorithm>

#include "kernels/common/few_rows.cuh"
#include "kernels/common/rounded.cuh"
#include "kernels/linear/linear.h"
#include "kernels/linears/wide_linears.h"

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

// Grid: as many blocks as the device holds at once, or as there are tiles. Reads the weights once.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    linear_few_rows_kernel(const __grid_constant__ LinearArgs a, const __grid_constant__ Weights w) {
  start_next_kernel();
  const auto locate = [&](int i) { return FewRowsTile<Weights>{w, 16 * i, a.out_dim, 0}; };
  FewRows<PieceProduct<Weights, 3>, decltype(locate)> product(
      dynamic_shared<uint4>(), a.in_dim, a.rows, parts_of<Weights>(a.in_dim), (a.out_dim + 15) / 16,
      int(blockIdx.x), int(gridDim.x), locate);
  product.start();
  wait_for_kernel_before();
  for (int r = 0; r < a.rows; ++r)
    keep_row<PieceProduct<Weights, 3>>(product.kept(r), a.in_dim, [&](int k, float(&value)[8]) {
      read_octet(a.x + r * a.x_stride, k, value);
    });
  __syncthreads();
  product.run([&](const auto&, int, int r, int o, float sum) { a.y[r * a.y_stride + o] = sum; });
}

template <class Weights>
void product(const LinearArgs& a, const Weights& w, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const bool few = a.rows <= kFewRows;
  const size_t shared = few_rows_bytes<PieceProduct<Weights, 3>>(a.rows, a.in_dim);
  if (few && a.in_dim % 8 == 0 && w.aligned(a.in_dim) && shared <= device.shared_bytes_max) {
    const int64_t rounds = ceil_div(ceil_div(a.out_dim, 16), kProductWarps / parts_of<Weights>(a.in_dim));
    const int fit = few_rows_blocks<PieceProduct<Weights, 3>>(shared, device.shared_bytes_max);
    return launch(queue, unsigned(std::min<int64_t>(rounds, fit * device.multiprocessors)),
                  kProductWarps * kWarp, shared, linear_few_rows_kernel<Weights>, a, w);
  }
  const dim3 grid(unsigned(ceil_div(a.out_dim, 16)),
                  unsigned(ceil_div(a.rows, few ? kFewRows : 8 * kTilesOfMany)));
  launch(queue, grid, kProductWarps * kWarp, 0,
         few ? linear_kernel<1, Weights> : linear_kernel<kTilesOfMany, Weights>, a, w);
}

void own_product(const LinearArgs& a, Queue& queue) {
  LinearsArgs one = {};
  one.products[0] = {a.x, a.weight, a.weight_type, a.y, a.x_stride, a.y_stride, a.in_dim, a.out_dim};
  one.num_products = 1, one.rows = a.rows;
  if (wide_linears(one, queue)) return;
  if (a.weight_type == DType::bf16)
    product(a, Bf16Weights{static_cast<const bf16*>(a.weight), a.in_dim}, queue);
  else if (a.weight_type == DType::f8_e4m3)
    product(a, Fp8Weights{static_cast<const uint8_t*>(a.weight), a.weight_scales, a.in_dim}, queue);
  else
    product(a, F32Weights{static_cast<const float*>(a.weight), a.in_dim}, queue);
}

// FP8 rows [rows, in_dim] times the scales of their tiles, rounded to bf16. One thread takes 16 codes.
void unpack_rows(const uint8_t* codes, const float* scales, int64_t rows, int64_t in_dim, uint4* to,
                 Queue& queue) {
  const int64_t runs = in_dim / 16, tiles = ceil_div(in_dim, kFp8Block);
  each(queue, rows * runs, [=] __device__(int64_t i) {
    const int64_t o = i / runs, k = i % runs * 16;
    const float scale = scales[o / kFp8Block * tiles + k / kFp8Block];
    const uint4 run = __ldg(reinterpret_cast<const uint4*>(codes + o * in_dim + k));
    const uint32_t words[4] = {run.x, run.y, run.z, run.w};
    uint32_t pairs[8];
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      const uint32_t two = words[pair / 2] >> pair % 2 * 16;
      pairs[pair] =
          round_to_bf16x2(e4m3_to_f32(uint8_t(two)) * scale, e4m3_to_f32(uint8_t(two >> 8)) * scale);
    }
    to[2 * i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    to[2 * i + 1] = {pairs[4], pairs[5], pairs[6], pairs[7]};
  });
}

// The rows of `a` that cuBLASLt multiplies, from the first on; the others are left to own_product().
int rounded_product(const LinearArgs& a, CudaQueue& queue) {
  const bool fp8 = a.weight_type == DType::f8_e4m3;
  if (a.route == Route::exact || a.weight_type == DType::f32 || a.rows < kLinearManyRows || !queue.cublas() ||
      a.in_dim % (fp8 ? 16 : 8) != 0 || a.x_stride % 4 != 0 || uint64_t(a.x) % 16 != 0 ||
      uint64_t(a.weight) % 16 != 0)
    return 0;

  // Pieces of as many rows, and with FP8 as many outputs, as the scratch memory holds.
  Scratch scratch(queue);
  const size_t workspace_bytes = cublas_workspace_bytes(queue);
  void* workspace = scratch.take<char>(int64_t(workspace_bytes));
  const int pieces = a.rows <= kLinearPiecesRows ? 2 : 1;
  const int64_t held = (scratch.left() - 1024) / (2 * int64_t(a.in_dim));  // rows in bf16
  const int64_t rows_at_once = std::min<int64_t>(a.rows, (fp8 ? held / 2 : held) / pieces);
  const int64_t outputs_at_once =
      fp8 ? std::min<int64_t>(a.out_dim, (held - pieces * rows_at_once) / kFp8Block * kFp8Block) : a.out_dim;
  if (rows_at_once < kLinearManyRows || outputs_at_once == 0) return 0;
  auto* x = scratch.take<uint4>(pieces * rows_at_once * a.in_dim / 8);
  auto* weights = fp8 ? scratch.take<uint4>(outputs_at_once * a.in_dim / 8) : nullptr;
  const auto* stored = static_cast<const uint8_t*>(a.weight);

  for (int64_t done = 0; done < a.rows; done += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, a.rows - done);
    for (int64_t o = 0; o < a.out_dim; o += outputs_at_once) {
      const int64_t outputs = std::min<int64_t>(outputs_at_once, a.out_dim - o);
      const CublasProduct product{.x = x,
                                  .weight = fp8 ? weights : a.weight,
                                  .y = a.y + done * a.y_stride + o,
                                  .x_stride = a.in_dim,
                                  .y_stride = a.y_stride,
                                  .rows = int(rows),
                                  .in_dim = a.in_dim,
                                  .out_dim = int(outputs)};
      if (!queue.cublas_plans().find(product, workspace_bytes)) return int(done);
      if (o == 0) cut_rows(pieces, queue, a.x + done * a.x_stride, a.x_stride, 0, rows, 1, a.in_dim, x);
      if (fp8)
        unpack_rows(stored + o * a.in_dim, a.weight_scales + o / kFp8Block * ceil_div(a.in_dim, kFp8Block),
                    outputs, a.in_dim, weights, queue);
      run_cublas(queue, product, pieces, rows * a.in_dim * int64_t(sizeof(bf16)), workspace, workspace_bytes);
    }
  }
  return a.rows;
}

}  // namespace

void cuda::linear(const LinearArgs& a, Queue& queue) {
  LinearArgs rest = a;
  const int done = rounded_product(a, static_cast<CudaQueue&>(queue));
  rest.x += done * a.x_stride, rest.y += done * a.y_stride, rest.rows -= done;
  if (rest.rows > 0) own_product(rest, queue);
}

}  // namespace dsa
