// kernels/vision_attention/vision_attention.cu: one block for 8 queries of a head; the blocks of a head go round the
// queries of a picture.
#include "kernels/common/attention.cuh"
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

}  // namespace

void cuda::vision_attention(const VisionAttentionArgs& a, Queue& queue) {
  const auto kernel = attend_kernel_for(a.dim, vision_attention_kernel<2>, vision_attention_kernel<8>,
                                        vision_attention_kernel<8>, vision_attention_kernel<8>);
  launch(queue, dim3(kBlocks, unsigned(a.heads), unsigned(a.num_runs)), kAttendThreads,
         attend_shared_bytes(a.dim, a.dim, true), kernel, a);
}

}  // namespace dsa
