// kernels/expert_down/expert_down.cu: a block takes 16 outputs through all experts of a token; see common/mxfp4_rows.cuh.
#include <algorithm>

#include "base/status.h"
#include "kernels/activation/activation.cuh"
#include "kernels/common/mxfp4_rows.cuh"
#include "kernels/expert_down/expert_down.h"

namespace dsa {
namespace {

constexpr int kTeam = 1;  // warps of a tile

// Grid (some blocks, tokens). Reads each matrix of a token once. A warp takes an expert through 16 outputs; thread o of the
// block adds up output o.
template <class Product>
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    expert_down_kernel(const __grid_constant__ ExpertDownArgs a) {
  __shared__ SharedMatrix downs[kExpertTopKMax];
  __shared__ float weights[kExpertTopKMax];
  begin_kernel();
  const int64_t t = blockIdx.y;
  const int tiles = (a.out_dim + 15) / 16,
            mine = (tiles - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  for (int slot = threadIdx.x; slot < a.top_k; slot += kProductWarps * kWarp) {
    const ExpertMatrix& m = a.downs[a.expert_ids[t * a.top_k + slot]];
    downs[slot] = {static_cast<const uint8_t*>(m.data), m.scales};
    weights[slot] = a.expert_weights[t * a.top_k + slot];
  }
  __syncthreads();
  const auto locate = [&](int i) {  // tile after tile, in each of them slot after slot
    const int slot = i % a.top_k, tile = int(blockIdx.x) + i / a.top_k * int(gridDim.x);
    return FewRowsTile<Mxfp4Weights>{
        {downs[slot].blocks, downs[slot].scales, a.in_dim}, tile * 16, a.out_dim, slot};
  };
  FewRows<Product, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, 1, kTeam, mine * a.top_k, 0,
                                             1, locate);
  product.start();
  const int octets = stretches_of<Mxfp4Weights>(a.in_dim) * (kMxfp4Stretch / 8);
#pragma unroll 2
  for (int i = threadIdx.x; i < a.top_k * octets; i += kProductWarps * kWarp) {
    const int slot = i / octets, k = i % octets * 8;
    float value[8] = {}, up[8] = {};
    if (k < a.in_dim) {
      read_octet(a.gate + (t * a.top_k + slot) * a.in_dim, k, value);
      read_octet(a.up + (t * a.top_k + slot) * a.in_dim, k, up);
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] = activate(a.form, value[j], up[j]);
    }
    Product::keep_octet(product.kept(slot), a.in_dim, i % octets, value);
  }
  __syncthreads();
  // What is added to the outputs of a tile, of one thread each: of the first tile before its products.
  struct Beside {
    float shared = 0, addend = 0;
  };
  const auto beside = [&](int o) {
    const int64_t at = t * a.out_dim + o;
    return Beside{a.shared ? a.shared[at] : 0, a.addend ? a.addend[at] : 0};
  };
  Beside first;
  if (const int o = int(blockIdx.x) * 16 + int(threadIdx.x); threadIdx.x < 16 && o < a.out_dim)
    first = beside(o);
  float y = 0;
  product.run([&](const auto&, int i, int, int o, float sum) {
    const int slot = i % a.top_k;
    y = (slot == 0 ? 0 : y) + weights[slot] * sum;
    if (slot + 1 < a.top_k) return;
    const Beside more = i < a.top_k ? first : beside(o);
    if (a.shared) y += more.shared;
    a.y[t * a.out_dim + o] = a.addend ? more.addend + y : y;
  });
}

template <class Product>
void product(const ExpertDownArgs& a, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const size_t shared = few_rows_bytes<Product>(1, a.top_k, a.in_dim, kTeam);
  DSA_ASSERT(a.top_k <= kExpertTopKMax && shared <= device.shared_bytes_max);
  const int64_t blocks = std::max(2 * device.multiprocessors / a.tokens, 1);
  launch(queue, dim3(unsigned(std::min(ceil_div(a.out_dim, 16), blocks)), unsigned(a.tokens)),
         kProductWarps * kWarp, shared, expert_down_kernel<Product>, a);
}

}  // namespace

void cuda::expert_down(const ExpertDownArgs& a, Queue& queue) {
  if (a.tokens == 0) return;
  a.route == Route::exact ? product<PieceProduct<Mxfp4Weights, 3>>(a, queue)
                          : product<Mxfp4Product<1>>(a, queue);
}

}  // namespace dsa
