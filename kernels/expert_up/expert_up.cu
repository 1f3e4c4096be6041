// kernels/expert_up/expert_up.cu: tiles of all matrices that a token needs, one after the other; see common/mxfp4_row.cuh.
#include <algorithm>

#include "base/status.h"
#include "kernels/common/mxfp4_row.cuh"
#include "kernels/expert_up/expert_up.h"

namespace dsa {
namespace {

// Grid (some blocks, tokens). Reads each matrix of a token once.
template <class Product>
__global__ void __launch_bounds__(kProductWarps* kWarp, Product::kBlocks)
    expert_up_kernel(const __grid_constant__ ExpertUpArgs a, int team) {
  __shared__ SharedMatrix matrices[kExpertTopKMax][2];  // gate and up
  begin_kernel();  // from here on the experts are known to all kernels behind
  const int64_t t = blockIdx.y;
  bool aligned = true;
  for (int slot = threadIdx.x; slot < a.top_k; slot += kProductWarps * kWarp) {
    const int e = a.expert_ids[t * a.top_k + slot];
    matrices[slot][0] = {static_cast<const uint8_t*>(a.gates[e].data), a.gates[e].scales};
    matrices[slot][1] = {static_cast<const uint8_t*>(a.ups[e].data), a.ups[e].scales};
    aligned = aligned && aligned_scales(a.gates[e].scales) && aligned_scales(a.ups[e].scales);
  }
  aligned = !__syncthreads_or(!aligned);
  const int tiles = (a.out_dim + 15) / 16;  // of a matrix; that of the gate comes before that of up
  const float* x = a.x + t * a.x_stride;
  const auto read = [&](int k, float(&value)[8]) { read_octet(x, k, value); };
  const auto finish = [&](int i, int o, float sum) {  // o: of the matrix
    const int matrix = i / tiles;
    (matrix % 2 ? a.up : a.gate)[(t * a.top_k + matrix / 2) * a.out_dim + o] = sum;
  };
  if constexpr (kMxfp4Fast<Product>) {
    if (aligned && whole_mxfp4_tiles(a.in_dim, a.out_dim)) {
      const auto number = [&](int i) {  // of tile i of this block
        return int(blockIdx.x) + i * int(gridDim.x);
      };
      const auto locate = [&](int i) {
        const int matrix = number(i) / tiles;
        const SharedMatrix& m = matrices[matrix / 2][matrix % 2];
        return mxfp4_tile(m.blocks, m.scales, a.in_dim, number(i) % tiles);
      };
      const int mine = (2 * a.top_k * tiles - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
      Mxfp4Row<true, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, 1, mine, locate);
      keep_row_and_start<Product>(product.kept(0), a.in_dim, read, [&] { product.start(); });
      __syncthreads();
      product.run([&](int i, int o, float sum) { finish(number(i), number(i) % tiles * 16 + o, sum); });
      return;
    }
  }
  const auto locate = [&](int i) {
    const int matrix = i / tiles;
    const SharedMatrix& m = matrices[matrix / 2][matrix % 2];
    return FewRowsTile<Mxfp4Weights>{{m.blocks, m.scales, a.in_dim}, i % tiles * 16, a.out_dim, 0};
  };
  FewRows<Product, decltype(locate)> product(dynamic_shared<uint4>(), a.in_dim, 1, team, 2 * a.top_k * tiles,
                                             int(blockIdx.x), int(gridDim.x), locate);
  product.start();
  keep_row<Product>(product.kept(0), a.in_dim, read);
  __syncthreads();
  product.run([&](const auto&, int i, int, int o, float sum) { finish(i, o, sum); });
}

template <class Product>
void product(const ExpertUpArgs& a, Queue& queue) {
  const CudaDevice& device = static_cast<CudaQueue&>(queue).device();
  const bool whole = kMxfp4Fast<Product> && whole_mxfp4_tiles(a.in_dim, a.out_dim);
  const size_t of_row = whole ? mxfp4_row_bytes(1, a.in_dim) : 0,
               most = std::max(few_rows_bytes<Product>(1, 1, a.in_dim, 1), of_row);
  const int64_t tiles = 2 * a.top_k * ceil_div(a.out_dim, 16),
                blocks = std::max<int64_t>(blocks_at_once<Product>(device, most) / a.tokens, 1);
  const int team = best_team<Mxfp4Weights>(a.in_dim, tiles, blocks);
  const int64_t teams = whole ? mxfp4_row_teams(a.in_dim) : kProductWarps / team;
  const size_t shared = std::max(few_rows_bytes<Product>(1, 1, a.in_dim, team), of_row);
  DSA_ASSERT(a.top_k <= kExpertTopKMax && most <= device.shared_bytes_max);
  launch(queue, dim3(unsigned(std::min(ceil_div(tiles, teams), blocks)), unsigned(a.tokens)),
         kProductWarps * kWarp, shared, expert_up_kernel<Product>, a, team);
}

}  // namespace

void cuda::expert_up(const ExpertUpArgs& a, Queue& queue) {
  if (a.tokens == 0) return;
  a.route == Route::exact ? product<PieceProduct<Mxfp4Weights, 3>>(a, queue)
                          : product<Mxfp4Product<1>>(a, queue);
}

}  // namespace dsa
