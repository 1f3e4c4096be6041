// kernels/linears/linears.cu: each product has blocks of its own, as many as its weights deserve; see common/few_rows.cuh.
#include <algorithm>

#include "kernels/activation/activation.cuh"
#include "kernels/add/add.h"
#include "kernels/common/few_rows.cuh"
#include "kernels/linear/linear.h"
#include "kernels/linears/linears.h"
#include "kernels/rms_norm/rms_norm.h"

namespace dsa {
namespace {

// Blocks [begin[i], begin[i + 1]) compute product i.
struct Blocks {
  int begin[LinearsArgs::kMax + 1];
};

template <class Weights>
__device__ Weights weights_of(const LinearsArgs::Product& p) {
  Weights w{};
  w.data = static_cast<decltype(w.data)>(p.weight);
  if constexpr (requires { w.scales; }) w.scales = p.weight_scales;
  w.row_stride = p.in_dim;
  return w;
}

// Reads the weights of all products once. Block 0 writes h.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    linears_kernel(const __grid_constant__ LinearsArgs a, const __grid_constant__ Blocks blocks) {
  start_next_kernel();
  int i = 0;
  while (int(blockIdx.x) >= blocks.begin[i + 1]) ++i;
  const LinearsArgs::Product& p = a.products[i];
  const Weights w = weights_of<Weights>(p);
  const auto locate = [&](int tile) { return FewRowsTile<Weights>{w, 16 * tile, p.out_dim, 0}; };
  FewRows<Weights, 3, decltype(locate)> product(
      dynamic_shared<uint4>(), p.in_dim, a.rows, team_size(p.in_dim), (p.out_dim + 15) / 16,
      int(blockIdx.x) - blocks.begin[i], blocks.begin[i + 1] - blocks.begin[i], locate);
  product.start();
  wait_for_kernel_before();

  for (int r = 0; r < a.rows; ++r) {
    const float* x = p.x + r * p.x_stride;
    float scale = 0;
    if (a.norm) {  // as in rms_norm
      float squares = 0;
      for (int d = threadIdx.x; d < p.in_dim; d += blockDim.x) squares += x[d] * x[d];
      scale = rsqrtf(block_sum(squares) / p.in_dim + a.eps);
    }
    keep_row<Weights, 3>(product.kept(r), p.in_dim, [&](int k, float(&value)[8]) {
      read_octet(x, k, value);
      if (a.norm) {
        float weight[8];
        read_octet(a.norm, k, weight);
#pragma unroll
        for (int j = 0; j < 8; ++j) value[j] = value[j] * scale * weight[j];
        if (blockIdx.x == 0) {
#pragma unroll
          for (int j = 0; j < 8; ++j) a.h[int64_t(r) * p.in_dim + k + j] = value[j];
        }
      } else if (a.up) {
        float up[8];
        read_octet(a.up + r * p.x_stride, k, up);
#pragma unroll
        for (int j = 0; j < 8; ++j) value[j] = activate(a.form, value[j], up[j]);
      }
    });
  }
  __syncthreads();
  product.run([&](const auto&, int, int r, int o, float sum) {
    const float addend = p.addend ? p.addend[r * p.addend_stride + o] : 0;
    p.y[r * p.y_stride + o] = p.addend ? addend + sum : sum;
  });
}

template <class Weights>
bool fits(const LinearsArgs& a, size_t shared_bytes_max) {
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    Weights w{};
    w.data = static_cast<decltype(w.data)>(p.weight);
    w.row_stride = p.in_dim;
    if (p.in_dim % 8 != 0 || !w.aligned(p.in_dim) ||
        few_rows_bytes<Weights, 3>(a.rows, a.rows, p.in_dim) > shared_bytes_max)
      return false;
  }
  return true;
}

template <class Weights>
bool together(const LinearsArgs& a, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  if (a.rows > kLinearsRowsMax || !fits<Weights>(a, device.shared_bytes_max)) return false;
  int64_t rounds[LinearsArgs::kMax], work = 0;
  size_t shared = 0;
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    rounds[i] = ceil_div(ceil_div(p.out_dim, 16), kProductWarps / team_size(p.in_dim));
    work += rounds[i] * p.in_dim;
    shared = std::max(shared, few_rows_bytes<Weights, 3>(a.rows, a.rows, p.in_dim));
  }
  Blocks blocks = {};
  for (int i = 0; i < a.num_products; ++i) {
    const int64_t fair = ceil_div(rounds[i] * a.products[i].in_dim * 2 * device.multiprocessors, work);
    blocks.begin[i + 1] = blocks.begin[i] + int(std::min(rounds[i], fair));
  }
  launch(queue, unsigned(blocks.begin[a.num_products]), kProductWarps * kWarp, shared,
         linears_kernel<Weights>, a, blocks);
  return true;
}

// A launch each.
void apart(const LinearsArgs& a, Queue& queue) {
  float* scratch = static_cast<float*>(static_cast<CudaQueue&>(queue).scratch());
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    const float* x = p.x;
    int64_t x_stride = p.x_stride;
    if (a.norm) {
      if (i == 0) cuda::rms_norm({x, a.norm, a.h, x_stride, p.in_dim, a.rows, p.in_dim, a.eps}, queue);
      x = a.h, x_stride = p.in_dim;
    } else if (a.up) {
      for (int r = 0; r < a.rows; ++r)
        cuda::activation(
            {x + r * x_stride, a.up + r * x_stride, scratch + int64_t(r) * p.in_dim, 1, p.in_dim, a.form},
            queue);
      x = scratch, x_stride = p.in_dim;
    }
    float* sum = scratch + (a.up ? ceil_div(int64_t(a.rows) * p.in_dim, 4) * 4 : 0);
    cuda::linear({x, p.weight, p.weight_type, p.addend ? sum : p.y, x_stride,
                  p.addend ? p.out_dim : p.y_stride, a.rows, p.in_dim, p.out_dim, p.weight_scales},
                 queue);
    for (int r = 0; p.addend && r < a.rows; ++r)
      cuda::add(
          {p.addend + r * p.addend_stride, sum + int64_t(r) * p.out_dim, p.y + r * p.y_stride, p.out_dim},
          queue);
  }
}

}  // namespace

// Products of one number format share a launch; those of others read what the first launch has normed.
void cuda::linears(const LinearsArgs& a, Queue& queue) {
  if (a.num_products == 0 || a.rows == 0) return;
  const DType type = a.products[0].weight_type;
  LinearsArgs same = a, rest = a;
  same.num_products = rest.num_products = 0;
  for (int i = 0; i < a.num_products; ++i) {
    LinearsArgs& of_type = a.products[i].weight_type == type ? same : rest;
    of_type.products[of_type.num_products++] = a.products[i];
  }
  if (!(type == DType::bf16      ? together<Bf16Weights>(same, queue)
        : type == DType::f8_e4m3 ? together<Fp8Weights>(same, queue)
                                 : together<F32Weights>(same, queue)))
    apart(same, queue);
  if (a.norm) {
    rest.norm = nullptr, rest.h = nullptr;
    for (int i = 0; i < rest.num_products; ++i) {
      rest.products[i].x = a.h;
      rest.products[i].x_stride = rest.products[i].in_dim;
    }
  }
  linears(rest, queue);
}

}  // namespace dsa
