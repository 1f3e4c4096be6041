// kernels/expert_down/expert_down.cu: a block takes 16 outputs through all experts of a token; see common/mxfp4_row.cuh.
#include <algorithm>

#include "base/status.h"
#include "kernels/activation/activated_rows.cuh"
#include "kernels/common/mxfp4_row.cuh"
#include "kernels/expert_down/expert_down.h"

namespace dsa {
namespace {

constexpr int kTeam = 1;  // warps of a tile in FewRows
constexpr size_t kStaticBytes = kExpertTopKMax * (sizeof(SharedMatrix) + sizeof(float));  // of shared memory

// The rows of a token as products keep them.
__device__ __host__ inline size_t kept_vectors(const ExpertDownArgs& a) {
  return a.top_k * Mxfp4Product<1>::kept_bytes(a.in_dim) / sizeof(uint4);
}

// Grid (top_k, tokens). A block makes a row, once for all that multiply it.
__global__ void __launch_bounds__(kProductWarps* kWarp)
    activate_kernel(const __grid_constant__ ExpertDownArgs a, uint4* rows) {
  start_next_kernel();
  wait_for_kernel_before();
  const int64_t row = int64_t(blockIdx.y) * a.top_k + blockIdx.x, inputs = row * a.in_dim;
  keep_activated<Mxfp4Product<1>>(rows + row * (Mxfp4Product<1>::kept_bytes(a.in_dim) / sizeof(uint4)),
                                  a.in_dim, 1, a.form, a.gate + inputs, a.up + inputs);
}

// Grid (some blocks, tokens). Reads each matrix of a token once, from before the kernel before has ended: that one did not
// choose the experts, see expert_down.h. Thread o of the block adds up output o. `rows` are those of activate_kernel, null if
// there was none.
template <class Product>
__global__ void __launch_bounds__(kProductWarps* kWarp, Product::kBlocks)
    expert_down_kernel(const __grid_constant__ ExpertDownArgs a, const uint4* rows) {
  __shared__ SharedMatrix downs[kExpertTopKMax];
  __shared__ float weights[kExpertTopKMax];
  start_next_kernel();
  const int64_t t = blockIdx.y;
  const int tiles = (a.out_dim + 15) / 16,
            mine = (tiles - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
  bool aligned = true;
  for (int slot = threadIdx.x; slot < a.top_k; slot += kProductWarps * kWarp) {
    const ExpertMatrix& m = a.downs[__ldcg(a.expert_ids + t * a.top_k + slot)];
    downs[slot] = {static_cast<const uint8_t*>(m.data), m.scales};
    weights[slot] = __ldcg(a.expert_weights + t * a.top_k + slot);
    aligned = aligned && aligned_scales(m.scales);
  }
  aligned = !__syncthreads_or(!aligned);
  // Tile after tile of outputs, in each of them slot after slot.
  const auto tile_of = [&](int i) { return int(blockIdx.x) + i / a.top_k * int(gridDim.x); };
  const int64_t inputs = t * a.top_k * a.in_dim;
  // What is added to the outputs of a tile, of one thread each: of the first tile before its products.
  struct Beside {
    float shared = 0, addend = 0;
  };
  const auto beside = [&](int o) {
    const int64_t at = t * a.out_dim + o;
    return Beside{a.shared ? a.shared[at] : 0, a.addend ? a.addend[at] : 0};
  };
  Beside first;
  const auto read_first = [&] {
    if (const int o = int(blockIdx.x) * 16 + int(threadIdx.x); threadIdx.x < 16 && o < a.out_dim)
      first = beside(o);
  };
  float y = 0;
  const auto finish = [&](int i, int o, float sum) {
    const int slot = i % a.top_k;
    y = (slot == 0 ? 0 : y) + weights[slot] * sum;
    if (slot + 1 < a.top_k) return;
    const Beside more = i < a.top_k ? first : beside(o);
    if (a.shared) y += more.shared;
    a.y[t * a.out_dim + o] = a.addend ? more.addend + y : y;
  };
  if constexpr (kMxfp4Fast<Product>) {
    if (rows && aligned) {
      const auto locate = [&](int i) {
        const SharedMatrix& m = downs[i % a.top_k];
        return mxfp4_tile(m.blocks, m.scales, a.in_dim, tile_of(i));
      };
      Mxfp4Row<true, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, a.top_k, mine * a.top_k,
                                               locate);
      product.start();
      wait_for_kernel_before();
      const int vectors = int(kept_vectors(a));
#pragma unroll 8
      for (int i = threadIdx.x; i < vectors; i += kProductWarps * kWarp)
        product.kept(0)[i] = __ldcg(rows + t * vectors + i);
      read_first();
      __syncthreads();
      product.run_in_order([&](int i, int o, float sum) { finish(i, tile_of(i) * 16 + o, sum); });
      return;
    }
  }
  const auto locate = [&](int i) {
    const SharedMatrix& m = downs[i % a.top_k];
    return FewRowsTile<Mxfp4Weights>{{m.blocks, m.scales, a.in_dim}, tile_of(i) * 16, a.out_dim, i % a.top_k};
  };
  FewRows<Product, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, 1, kTeam, mine * a.top_k, 0,
                                             1, locate);
  product.start();
  wait_for_kernel_before();
  keep_activated<Product>(product.kept(0), a.in_dim, a.top_k, a.form, a.gate + inputs, a.up + inputs);
  __syncthreads();
  read_first();
  product.run_in_order([&](const auto&, int i, int, int o, float sum) { finish(i, o, sum); });
}

template <class Product>
void product(const ExpertDownArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const CudaDevice& device = cuda_queue.device();
  const bool whole = kMxfp4Fast<Product> && whole_mxfp4_tiles(a.in_dim, a.out_dim) &&
                     a.tokens * kept_vectors(a) * sizeof(uint4) <= cuda_queue.scratch_bytes();
  const size_t shared = std::max(few_rows_bytes<Product>(1, a.top_k, a.in_dim, kTeam),
                                 whole ? mxfp4_row_bytes(a.top_k, a.in_dim) : 0);
  DSA_ASSERT(a.top_k <= kExpertTopKMax && shared <= device.shared_bytes_max);
  const int64_t blocks =
      std::max<int64_t>(blocks_at_once<Product>(device, shared + kStaticBytes) / a.tokens, 1);
  uint4* rows = nullptr;
  if (whole) {
    rows = static_cast<uint4*>(cuda_queue.scratch());
    launch(queue, dim3(unsigned(a.top_k), unsigned(a.tokens)), kProductWarps * kWarp, 0, activate_kernel, a,
           rows);
  }
  launch(queue, dim3(unsigned(std::min(ceil_div(a.out_dim, 16), blocks)), unsigned(a.tokens)),
         kProductWarps * kWarp, shared, expert_down_kernel<Product>, a, rows);
}

}  // namespace

void cuda::expert_down(const ExpertDownArgs& a, Queue& queue) {
  if (a.tokens == 0) return;
  a.route == Route::exact ? product<PieceProduct<Mxfp4Weights, 3>>(a, queue)
                          : product<Mxfp4Product<1>>(a, queue);
}

}  // namespace dsa
