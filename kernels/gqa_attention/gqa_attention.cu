// kernels/gqa_attention/gqa_attention.cu: one block for up to 8 query heads of a token that share a key and value head.
#include "kernels/common/attention.cuh"
#include "kernels/gqa_attention/gqa_attention.h"

namespace dsa {
namespace {

struct GroupSource {
  static constexpr bool kValuesApart = true;
  const GqaAttentionArgs& a;
  int64_t t;
  int head, kv_head, sequence, first;  // the first head, the first position
  int queries, count, k_dim, v_dim;
  float scale;

  __device__ float query(int i, int d) const { return a.q[(t * a.heads + head + i) * a.dim + d]; }
  __device__ const float* key(int p) const { return a.k.row(sequence, first + p) + int64_t(kv_head) * a.dim; }
  __device__ const float* value(int p) const {
    return a.v.row(sequence, first + p) + int64_t(kv_head) * a.dim;
  }
  __device__ float sink(int i) const { return a.sinks ? a.sinks[head + i] : -INFINITY; }
  __device__ void store(int i, int d, float y) const { a.o[(t * a.heads + head + i) * a.dim + d] = y; }
};

// Grid (parts of a group * kv_heads, tokens). Reads each row once per block.
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    gqa_attention_kernel(const __grid_constant__ GqaAttentionArgs a) {
  extern __shared__ float shared[];
  begin_kernel();
  const int64_t t = blockIdx.y;
  const int group = a.heads / a.kv_heads, parts = (group + kAttendQueries - 1) / kAttendQueries;
  const int kv_head = blockIdx.x / parts, part = blockIdx.x % parts * kAttendQueries;
  const int visible = a.visible[t], first = a.window > 0 && visible > a.window ? visible - a.window : 0;
  attend<kOut>(GroupSource{a, t, kv_head * group + part, kv_head, a.sequence_of[t], first,
                           min(kAttendQueries, group - part), visible - first, a.dim, a.dim, a.scale},
               shared);
}

}  // namespace

void cuda::gqa_attention(const GqaAttentionArgs& a, Queue& queue) {
  const auto kernel = attend_kernel_for(a.dim, gqa_attention_kernel<2>, gqa_attention_kernel<8>,
                                        gqa_attention_kernel<16>, gqa_attention_kernel<32>);
  const dim3 grid(unsigned(a.kv_heads * ceil_div(a.group(), kAttendQueries)), unsigned(a.tokens));
  launch(queue, grid, kAttendThreads, attend_shared_bytes(a.dim, a.dim, true), kernel, a);
}

}  // namespace dsa
