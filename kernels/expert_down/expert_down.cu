// kernels/expert_down/expert_down.cu: a block takes 16 outputs through all experts of a token; see common/mxfp4_rows.cuh.
#include <algorithm>

#include "base/status.h"
#include "kernels/activation/activated_rows.cuh"
#include "kernels/common/mxfp4_rows.cuh"
#include "kernels/expert_down/expert_down.h"

namespace dsa {
namespace {

constexpr int kTeam = 1;  // warps of a tile

// Grid (some blocks, tokens). Reads each matrix of a token once, from before the kernel before has ended: that one did not
// choose the experts, see expert_down.h. A warp takes an expert through 16 outputs; thread o of the
// block adds up output o.
template <class Product>
__global__ void __launch_bounds__(kProductWarps* kWarp, Product::kBlocks)
    expert_down_kernel(const __grid_constant__ ExpertDownArgs a) {
  __shared__ SharedMatrix downs[kExpertTopKMax];
  __shared__ float weights[kExpertTopKMax];
  start_next_kernel();
  const int64_t t = blockIdx.y;
  const int tiles = (a.out_dim + 15) / 16,
            mine = (tiles - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  for (int slot = threadIdx.x; slot < a.top_k; slot += kProductWarps * kWarp) {
    const ExpertMatrix& m = a.downs[__ldcg(a.expert_ids + t * a.top_k + slot)];
    downs[slot] = {static_cast<const uint8_t*>(m.data), m.scales};
    weights[slot] = __ldcg(a.expert_weights + t * a.top_k + slot);
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
  wait_for_kernel_before();
  const int64_t inputs = t * a.top_k * a.in_dim;
  keep_activated<Product>(product.kept(0), a.in_dim, a.top_k, a.form, a.gate + inputs, a.up + inputs);
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
  product.run_in_order([&](const auto&, int i, int, int o, float sum) {
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
  const int64_t blocks = std::max<int64_t>(blocks_at_once<Product>(device, shared) / a.tokens, 1);
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
