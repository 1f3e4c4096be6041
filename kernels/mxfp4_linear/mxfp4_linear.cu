// kernels/mxfp4_linear/mxfp4_linear.cu: outputs of a group on the tensor cores; see common/products.cuh. The fast route
// rounds activations to bf16, which is closer to them than blocks of int8.
#include "kernels/common/products.cuh"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {
namespace {

// Grid (ceil(out_dim / 16), num_groups). Reads the weights of a group once per 8 * kTilesN of its rows.
template <int kTilesN, int kPiecesX>
__global__ void __launch_bounds__(kProductWarps* kWarp)
    mxfp4_linear_kernel(const __grid_constant__ Mxfp4LinearArgs a) {
  begin_kernel();
  const Mxfp4LinearGroup group = a.groups[blockIdx.y].with_rows(a.y_stride);
  product_rows<1, kTilesN, kPiecesX>(Mxfp4Weights{group.blocks, group.scales, a.in_dim},
                                     a.x + group.row_begin * a.x_stride, a.x_stride, group.y, a.y_stride,
                                     group.rows, a.in_dim, a.out_dim, 0, 1);
}

// Few rows, where reading the weights is all the time there is. Weights go through shared memory, kStages stretches
// ahead; each lane copies what it will read itself, so that nobody waits for another. Sums as in product_tile.
constexpr int kTilesM = 2, kOutputs = 16 * kTilesM, kStages = 4, kRowsAtOnce = 8;
constexpr int kStageBytes = 2 * kTilesM * kWarp * 16;  // of a warp
constexpr size_t kRingBytes = size_t(kProductWarps) * kStages * kStageBytes;

__device__ void copy_async(void* shared, const void* global, bool exists) {
  const auto address = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
}

// Grid   (ceil(out_dim / kOutputs), num_groups).
// Shared the ring of weights, 64 KiB, then up to 8 rows of x in bf16, in the order of the fragments.
__global__ void __launch_bounds__(kProductWarps* kWarp, 2)
    mxfp4_few_rows_kernel(const __grid_constant__ Mxfp4LinearArgs a, const int rows_kept) {
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  const int stretches = (a.in_dim + kStretch - 1) / kStretch, o_begin = blockIdx.x * kOutputs;
  uint4* ring = shared + warp * (kStages * kStageBytes / 16);
  uint4* x = shared + kRingBytes / 16;  // [rows_kept, stretches, octet of a lane, quad]
  begin_kernel();
  const Mxfp4LinearGroup g = a.groups[blockIdx.y].with_rows(a.y_stride);
  const Mxfp4Weights w{g.blocks, g.scales, a.in_dim};

  const auto fetch = [&](int stretch, int stage) {
    const int k = stretch * kStretch + quad * Mxfp4Weights::kRun;
#pragma unroll
    for (int part = 0; part < 2 * kTilesM; ++part) {
      const int64_t o = o_begin + 8 * part + group;
      const bool exists = o < a.out_dim && k < a.in_dim;
      copy_async(ring + (stage * 2 * kTilesM + part) * kWarp + lane,
                 exists ? g.blocks + (o * a.in_dim + k) / 2 : g.blocks, exists);
    }
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  for (int r_begin = 0; r_begin < g.rows; r_begin += kRowsAtOnce) {
    const int rows = min(kRowsAtOnce, g.rows - r_begin);
#pragma unroll
    for (int stage = 0; stage < kStages - 1; ++stage) {
      if (warp + stage * kProductWarps < stretches) fetch(warp + stage * kProductWarps, stage);
      commit();
    }
    for (int i = threadIdx.x; i < rows * stretches * 16; i += kProductWarps * kWarp) {
      const int k = i % (stretches * 16) * 8;
      const float* at = a.x + (g.row_begin + r_begin + i / (stretches * 16)) * a.x_stride + k;
      float value[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) value[j] = k < a.in_dim ? at[j] : 0.f;
      const int octet = k / 8 % 4, at_quad = k / 32 % 4;
      x[i / 16 * 16 + octet * 4 + at_quad] = {
          round_to_bf16x2(value[0], value[4]), round_to_bf16x2(value[1], value[5]),
          round_to_bf16x2(value[2], value[6]), round_to_bf16x2(value[3], value[7])};
    }
    __syncthreads();

    float total[kTilesM][1][4] = {};
    bool nan[kTilesM][2] = {};
    for (int stretch = warp, stage = 0; stretch < stretches;
         stretch += kProductWarps, stage = (stage + 1) % kStages) {
      const int ahead = stretch + (kStages - 1) * kProductWarps;
      if (ahead < stretches) fetch(ahead, (stage + kStages - 1) % kStages);
      commit();
      uint32_t scale[2 * kTilesM];
      const int k = stretch * kStretch + quad * Mxfp4Weights::kRun;
#pragma unroll
      for (int part = 0; part < 2 * kTilesM; ++part) {
        const int64_t o = o_begin + 8 * part + group;
        scale[part] = o < a.out_dim && k < a.in_dim ? g.scales[(o * a.in_dim + k) / kMxfp4Block] : 0;
      }
      asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");

      Mxfp4Weights::Raw raw[2 * kTilesM];
#pragma unroll
      for (int part = 0; part < 2 * kTilesM; ++part)
        raw[part] = {ring[(stage * 2 * kTilesM + part) * kWarp + lane], scale[part]};
      float sum[kTilesM][4] = {};
#pragma unroll
      for (int octet = 0; octet < 4; ++octet) {
        uint4 column = {};
        if (group < rows) column = x[(group * stretches + stretch) * 16 + octet * 4 + quad];
        const uint32_t b[2][2] = {{column.x, column.y}, {column.z, column.w}};
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          uint32_t low[4][1], high[4][1];
          w.octet(raw[2 * m], octet, low, nan[m][0]);
          w.octet(raw[2 * m + 1], octet, high, nan[m][1]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t fragment[4] = {low[2 * half][0], high[2 * half][0], low[2 * half + 1][0],
                                          high[2 * half + 1][0]};
            mma(sum[m], fragment, b[half]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < kTilesM; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[m][0][i] += sum[m][i];
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    add_warps<kTilesM, 1>(total, nan, g.y, a.y_stride, g.rows, a.out_dim, o_begin, r_begin,
                          reinterpret_cast<float*>(shared));
    __syncthreads();
  }
}

}  // namespace

void cuda::mxfp4_linear(const Mxfp4LinearArgs& a, Queue& queue) {
  const bool few = a.rows <= 64, exact = a.route == Mxfp4Route::exact;
  const int rows_kept = a.rows < kRowsAtOnce ? a.rows : kRowsAtOnce;
  const size_t shared =
      kRingBytes + size_t(rows_kept) * size_t(ceil_div(a.in_dim, kStretch)) * kStretch * sizeof(bf16);
  if (few && !exact && shared <= static_cast<CudaQueue&>(queue).device().shared_bytes_max)
    return launch(queue, dim3(unsigned(ceil_div(a.out_dim, kOutputs)), unsigned(a.num_groups)),
                  kProductWarps * kWarp, shared, mxfp4_few_rows_kernel, a, rows_kept);
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, 16)), unsigned(a.num_groups)), kProductWarps * kWarp, 0,
         exact ? (few ? mxfp4_linear_kernel<1, 3> : mxfp4_linear_kernel<4, 3>)
               : (few ? mxfp4_linear_kernel<1, 1> : mxfp4_linear_kernel<4, 1>),
         a);
}

}  // namespace dsa
