// kernels/head_linear/head_linear.cu: 16 outputs of a head at a time, on the tensor cores; see common/products.cuh and
// common/few_rows.cuh. Many tokens on the fast route: kernels that cut activations into pieces and round weights to
// scratch memory, and a product of cuBLASLt for each piece of all heads.
#include <algorithm>

#include "kernels/common/few_rows.cuh"
#include "kernels/common/rounded.cuh"
#include "kernels/head_linear/head_linear.h"
#include "kernels/linear/linear.h"

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

// Grid (rounds of a head, heads). Reads the weights once.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    head_linear_few_rows_kernel(const __grid_constant__ HeadLinearArgs a, Weights w) {
  start_next_kernel();
  const int h = blockIdx.y;
  w.data += h * a.weight_head_stride;
  const auto locate = [&](int i) { return FewRowsTile<Weights>{w, 16 * i, a.out_dim, 0}; };
  FewRows<PieceProduct<Weights, 3>, decltype(locate)> product(
      dynamic_shared<uint4>(), a.in_dim, a.tokens, parts_of<Weights>(a.in_dim), (a.out_dim + 15) / 16,
      int(blockIdx.x), int(gridDim.x), locate);
  product.start();
  wait_for_kernel_before();
  for (int t = 0; t < a.tokens; ++t) {
    const float* x = a.x + t * a.x_token_stride + h * a.x_head_stride;
    keep_row<PieceProduct<Weights, 3>>(product.kept(t), a.in_dim,
                                       [&](int k, float(&value)[8]) { read_octet(x, k, value); });
  }
  __syncthreads();
  product.run([&](const auto&, int, int t, int o, float sum) {
    a.y[t * a.y_token_stride + h * a.y_head_stride + o] = sum;
  });
}

// Whether it was done.
template <class Weights>
bool few_rows(const HeadLinearArgs& a, const Weights& w, Queue& queue) {
  const size_t shared = few_rows_bytes<PieceProduct<Weights, 3>>(a.tokens, a.in_dim);
  if (a.tokens > kFewRows || a.in_dim % 8 != 0 || a.weight_head_stride % 8 != 0 ||
      !w.aligned(Weights::kTransposed ? a.out_dim : a.in_dim) ||
      shared > static_cast<CudaQueue&>(queue).device().shared_bytes_max)
    return false;
  const int64_t rounds = ceil_div(ceil_div(a.out_dim, 16), kProductWarps / parts_of<Weights>(a.in_dim));
  launch(queue, dim3(unsigned(rounds), unsigned(a.heads)), kProductWarps * kWarp, shared,
         head_linear_few_rows_kernel<Weights>, a, w);
  return true;
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

// The tokens that cuBLASLt multiplies, from the first on.
int rounded_product(const HeadLinearArgs& a, CudaQueue& queue) {
  const int64_t strides = a.x_token_stride | a.x_head_stride | a.weight_head_stride | a.in_dim;
  if (a.route == Route::exact || a.tokens < kHeadLinearManyTokens || !queue.cublas() || strides % 8 != 0 ||
      uint64_t(a.x) % 16 != 0 || uint64_t(a.weight) % 16 != 0)
    return 0;
  Scratch scratch(queue);
  const size_t workspace_bytes = cublas_workspace_bytes(queue);
  void* workspace = scratch.take<char>(int64_t(workspace_bytes));
  const int64_t matrix = int64_t(a.in_dim) * a.out_dim;
  const bool round_weights = a.weight_type == DType::f32;
  auto* weights = round_weights ? scratch.take<uint4>(a.heads * matrix / 8) : nullptr;
  const int pieces = a.tokens <= kLinearPiecesRows ? 2 : 1;
  const int64_t values = int64_t(a.heads) * a.in_dim, at_once = scratch.left() / (2 * pieces * values);
  if (at_once < kHeadLinearManyTokens) return 0;
  auto* x = scratch.take<uint4>(pieces * std::min<int64_t>(at_once, a.tokens) * values / 8);

  int done = 0;
  while (done < a.tokens) {
    const int tokens = int(std::min<int64_t>(at_once, a.tokens - done));
    const CublasProduct product{.x = x,
                                .weight = round_weights ? weights : a.weight,
                                .y = a.y + done * a.y_token_stride,
                                .x_stride = values,
                                .y_stride = a.y_token_stride,
                                .rows = tokens,
                                .in_dim = a.in_dim,
                                .out_dim = a.out_dim,
                                .transposed = a.transposed,
                                .batch = a.heads,
                                .x_batch_stride = a.in_dim,
                                .weight_batch_stride = round_weights ? matrix : a.weight_head_stride,
                                .y_batch_stride = a.y_head_stride};
    if (!queue.cublas_plans().find(product, workspace_bytes)) break;
    if (round_weights && done == 0)
      cut_rows(1, queue, static_cast<const float*>(a.weight), a.weight_head_stride, 0, a.heads, 1, matrix,
               weights);
    cut_rows(pieces, queue, a.x + done * a.x_token_stride, a.x_token_stride, a.x_head_stride, tokens, a.heads,
             a.in_dim, x);
    run_cublas(queue, product, pieces, tokens * values * int64_t(sizeof(bf16)), workspace, workspace_bytes);
    done += tokens;
  }
  return done;
}

}  // namespace

void cuda::head_linear(const HeadLinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16) {
    const auto* data = static_cast<const bf16*>(a.weight);
    if (a.transposed ? few_rows(a, TransposedBf16Weights{{data, a.out_dim, true}}, queue)
                     : few_rows(a, Bf16Weights{data, a.in_dim}, queue))
      return;
  }
  HeadLinearArgs rest = a;
  const int done = rounded_product(a, static_cast<CudaQueue&>(queue));
  rest.x += done * a.x_token_stride, rest.y += done * a.y_token_stride, rest.tokens -= done;
  if (rest.tokens == 0) return;
  if (a.weight_type == DType::bf16)
    product<bf16, Bf16Weights>(rest, queue);
  else
    product<float, F32Weights>(rest, queue);
}

}  // namespace dsa
