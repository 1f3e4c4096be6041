// kernels/linears/linears.cu: each product has blocks of its own, as many as its weights deserve; see common/few_rows.cuh.
#include <algorithm>

#include "kernels/activation/activated_rows.cuh"
#include "kernels/add/add.h"
#include "kernels/linear/linear.h"
#include "kernels/linears/lists.cuh"
#include "kernels/linears/wide_linears.h"
#include "kernels/rms_norm/rms_norm.h"

namespace dsa {
namespace {

template <class Weights>
__device__ Weights weights_of(const LinearsArgs::Product& p) {
  Weights w{};
  w.data = static_cast<decltype(w.data)>(p.weight);
  if constexpr (requires { w.scales; }) w.scales = p.weight_scales;
  w.row_stride = p.in_dim;
  return w;
}

constexpr int kTogether = 12;  // values that a thread waits for at once
// Octets of the weights of a norm that a thread reads before the kernel before has ended.
constexpr int kHeld = 2;

// Reads the weights of all products once. Block 0 writes h.
template <class Weights>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    linears_kernel(const __grid_constant__ LinearsArgs a, const __grid_constant__ Blocks blocks,
                   int at_once) {
  using Product = PieceProduct<Weights, 3>;
  constexpr int kThreads = kProductWarps * kWarp;
  start_next_kernel();
  int list = 0;
  while (int(blockIdx.x) >= blocks.begin[list + 1]) ++list;
  const LinearsArgs::Product& p = a.products[list];
  const auto locate = [&](int tile) {
    const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
    return FewRowsTile<Weights>{weights_of<Weights>(of), 16 * tile, of.out_dim, 0};
  };
  float norm[kHeld][8] = {};
#pragma unroll
  for (int held = 0; held < kHeld; ++held) {
    const int k = 8 * (int(threadIdx.x) + held * kThreads);
    if (a.norm && k < p.in_dim) read_octet(a.norm, k, norm[held]);
  }
  for (int begin = 0; begin < a.rows; begin += at_once) {
    const int rows = min(at_once, a.rows - begin);
    FewRows<Product, decltype(locate)> product(
        dynamic_shared<uint4>(), p.in_dim, rows, parts_of<Weights>(p.in_dim), tiles_of_list(a, list),
        int(blockIdx.x) - blocks.begin[list], blocks.begin[list + 1] - blocks.begin[list], locate);
    product.start();
    if (begin == 0) wait_for_kernel_before();

    for (int r = 0; r < rows; ++r) {
      const float* x = p.x + (begin + r) * p.x_stride;
      uint4* kept = product.kept(r);
      if (a.norm) {  // as in rms_norm
        float squares = 0;
        for (int d = threadIdx.x; d < p.in_dim; d += kTogether * kThreads) {
          float value[kTogether];
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
            value[j] = d + j * kThreads < p.in_dim ? x[d + j * kThreads] : 0;
#pragma unroll
          for (int j = 0; j < kTogether; ++j) squares += value[j] * value[j];
        }
        const float scale = rsqrtf(block_sum(squares) / p.in_dim + a.eps);
        float* h = blockIdx.x == 0 ? a.h + int64_t(begin + r) * p.in_dim : nullptr;
        const auto normed = [&](int octet, const float(&weight)[8]) {
          float value[8] = {};
          if (octet * 8 < p.in_dim) {
            read_octet(x, octet * 8, value);
#pragma unroll
            for (int j = 0; j < 8; ++j) {
              value[j] = value[j] * scale * weight[j];
              if (h) h[octet * 8 + j] = value[j];
            }
          }
          Product::keep_octet(kept, p.in_dim, octet, value);
        };
        const int octets = stretches_of<Weights>(p.in_dim) * (Weights::kStretch / 8);
#pragma unroll
        for (int held = 0; held < kHeld; ++held)
          if (const int octet = int(threadIdx.x) + held * kThreads; octet < octets) normed(octet, norm[held]);
        for (int octet = int(threadIdx.x) + kHeld * kThreads; octet < octets; octet += kThreads) {
          float weight[8] = {};
          if (octet * 8 < p.in_dim) read_octet(a.norm, octet * 8, weight);
          normed(octet, weight);
        }
      } else if (a.up) {
        const float* up = a.up + (begin + r) * p.x_stride;
        keep_activated<Product>(kept, p.in_dim, 1, a.form, x, up);
      } else {
        keep_row<Product>(kept, p.in_dim, [&](int k, float(&value)[8]) { read_octet(x, k, value); });
      }
    }
    __syncthreads();
    product.run(
        [&](int tile, int r, int o) {
          const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
          return of.addend ? of.addend[(begin + r) * of.addend_stride + o] : 0.f;
        },
        [&](const auto&, int tile, int r, int o, float sum, float addend) {
          const LinearsArgs::Product& of = a.products[product_of(a, list, tile)];
          of.y[(begin + r) * of.y_stride + o] = of.addend ? addend + sum : sum;
        });
    __syncthreads();
  }
}

// The rows that all products take at once; 0: one of them takes none.
template <class Weights>
int rows_at_once(const LinearsArgs& a, size_t shared_bytes_max) {
  int rows = a.rows;
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    Weights w{};
    w.data = static_cast<decltype(w.data)>(p.weight);
    w.row_stride = p.in_dim;
    if (p.in_dim % 8 != 0 || !w.aligned(p.in_dim)) return 0;
    rows = few_rows_at_once<PieceProduct<Weights, 3>>(rows, p.in_dim, shared_bytes_max);
  }
  return rows;
}

template <class Weights>
bool together(const LinearsArgs& a, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const int at_once = rows_at_once<Weights>(a, device.shared_bytes_max);
  if (a.rows > kLinearsRowsMax || at_once < a.rows) return false;
  using Product = PieceProduct<Weights, 3>;
  const int lists = num_lists(a);
  int64_t rounds[LinearsArgs::kMax] = {};
  size_t shared = 0;
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    rounds[std::min(i, lists - 1)] += ceil_div(tiles_of(p), kProductWarps / parts_of<Weights>(p.in_dim));
    shared = std::max(shared, few_rows_bytes<Product>(at_once, p.in_dim));
  }
  const int fit = few_rows_blocks<Product>(shared, device.shared_bytes_max);
  const Blocks blocks = share_out(a, rounds, int64_t(fit) * device.multiprocessors);
  launch(queue, unsigned(blocks.begin[lists]), kProductWarps * kWarp, shared, linears_kernel<Weights>, a,
         blocks, at_once);
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
  if (!(type == DType::bf16      ? wide_linears(same, queue) || together<Bf16Weights>(same, queue)
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
