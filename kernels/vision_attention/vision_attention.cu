// kernels/vision_attention/vision_attention.cu: one block for 8 queries of a head in f32, or for 128 on the tensor cores;
// the blocks of a head go round the queries of a picture.
#include "kernels/common/attention.cuh"
#include "kernels/common/attention_f16.cuh"
#include "kernels/vision_attention/vision_attention.h"

namespace dsa {
namespace {

struct PictureSource {
  static constexpr bool kValuesApart = true;
  const VisionAttentionArgs& a;
  int64_t t, k_begin;
  int h, queries, count, k_dim, v_dim;
  float scale;

  __device__ float query(int i, int d) const {
    return a.q[(t + i) * a.q_token_stride + h * a.q_head_stride + d];
  }
  __device__ const float* key(int p) const {
    return a.k + (k_begin + p) * a.kv_token_stride + h * a.kv_head_stride;
  }
  __device__ const float* value(int p) const {
    return a.v + (k_begin + p) * a.kv_token_stride + h * a.kv_head_stride;
  }
  __device__ float sink(int) const { return -INFINITY; }
  __device__ void store(int i, int d, float y) const {
    a.o[(t + i) * a.o_token_stride + h * a.o_head_stride + d] = y;
  }
};

constexpr int kBlocks = 256;  // of one head and picture

// Grid (kBlocks, heads, num_runs).
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    vision_attention_kernel(const __grid_constant__ VisionAttentionArgs a) {
  float* shared = dynamic_shared<float>();
  begin_kernel();
  const VisionAttentionRun run = a.runs[blockIdx.z];
  for (int t = blockIdx.x * kAttendQueries; t < run.queries; t += kBlocks * kAttendQueries) {
    attend<kOut>(PictureSource{a, run.q_begin + t, run.k_begin, int(blockIdx.y),
                               min(kAttendQueries, run.queries - t), run.keys, a.dim, a.dim, a.scale},
                 shared);
    __syncthreads();
  }
}

// The fast route; see common/attention_f16.cuh.
struct PictureRows {
  using Value = float;
  const VisionAttentionArgs& a;
  const VisionAttentionRun& run;
  int h, t;  // the first query
  int dim;
  float scale;
  int begin, end;

  __device__ F16Rows<float> rows(int p) const {
    const int64_t at = (run.k_begin + p) * a.kv_token_stride + h * a.kv_head_stride;
    return {a.k + at, a.v + at, a.kv_token_stride, a.kv_token_stride, 0, min(kF16Keys, run.keys - p)};
  }
  __device__ const float* query(int i) const {
    return t + i < run.queries ? a.q + (run.q_begin + t + i) * a.q_token_stride + h * a.q_head_stride
                               : nullptr;
  }
  __device__ F16Sight sight(int) const { return {0, run.keys}; }
  __device__ float sink(int) const { return -INFINITY; }
  __device__ float* out(int i) const {
    return a.o + (run.q_begin + t + i) * a.o_token_stride + h * a.o_head_stride;
  }
};

constexpr int kFastBlocks = 64;  // of one head and picture

// Grid (kFastBlocks, heads, num_runs). Reads keys and values once per kF16Queries queries.
template <int kDim>
__global__ void __launch_bounds__(kF16Warps* kWarp, kDim <= 64 ? 2 : 1)
    vision_attention_fast_kernel(const __grid_constant__ VisionAttentionArgs a) {
  auto* tiles = dynamic_shared<F16Tile<kDim>>();
  begin_kernel();
  const VisionAttentionRun run = a.runs[blockIdx.z];
  for (int t = blockIdx.x * kF16Queries; t < run.queries; t += kFastBlocks * kF16Queries)
    attend_f16<kDim>(PictureRows{a, run, int(blockIdx.y), t, a.dim, a.scale, 0, run.keys}, tiles);
}

bool takes_fast(const VisionAttentionArgs& a) {
  const int64_t strides = a.q_token_stride | a.q_head_stride | a.kv_token_stride | a.kv_head_stride |
                          a.o_token_stride | a.o_head_stride | a.dim;
  const uint64_t pointers = uint64_t(a.q) | uint64_t(a.k) | uint64_t(a.v) | uint64_t(a.o);
  return a.route == Route::fast && a.dim <= kF16DimMax && strides % 4 == 0 && pointers % 16 == 0;
}

}  // namespace

void cuda::vision_attention(const VisionAttentionArgs& a, Queue& queue) {
  if (takes_fast(a)) {
    const auto fast = f16_launch_for(a.dim, vision_attention_fast_kernel<64>,
                                     vision_attention_fast_kernel<96>, vision_attention_fast_kernel<128>);
    return launch(queue, dim3(kFastBlocks, unsigned(a.heads), unsigned(a.num_runs)), kF16Warps * kWarp,
                  fast.shared, fast.kernel, a);
  }
  const auto kernel = attend_kernel_for(a.dim, vision_attention_kernel<2>, vision_attention_kernel<8>,
                                        vision_attention_kernel<8>, vision_attention_kernel<8>);
  launch(queue, dim3(kBlocks, unsigned(a.heads), unsigned(a.num_runs)), kAttendThreads,
         attend_shared_bytes(a.dim, a.dim, true), kernel, a);
}

}  // namespace dsa
