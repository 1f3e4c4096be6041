// kernels/gqa_attention/gqa_attention.cu: one block for up to 8 query heads of a token that share a key and value head,
// or, for few tokens, for one split of their keys.
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
  __device__ CacheRow key(int p) const { return a.k.row(sequence, first + p).from(int64_t(kv_head) * a.dim); }
  __device__ CacheRow value(int p) const {
    return a.v.row(sequence, first + p).from(int64_t(kv_head) * a.dim);
  }
  __device__ float sink(int i) const { return a.sinks ? a.sinks[head + i] : -INFINITY; }
  __device__ void store(int i, int d, float y) const { a.o[(t * a.heads + head + i) * a.dim + d] = y; }
};

__device__ int positions_of(const GqaAttentionArgs& a, int64_t t) {
  return a.window > 0 ? min(a.visible[t], a.window) : a.visible[t];
}

// Grid (parts of a group * kv_heads, tokens, splits if there are partials). Reads each row once per block. Token
// `first` is the first of the grid and of the partials.
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    gqa_attention_kernel(const __grid_constant__ GqaAttentionArgs a, int first, float* partials) {
  float* shared = dynamic_shared<float>();
  begin_kernel();
  const int64_t t = first + blockIdx.y;
  const int group = a.heads / a.kv_heads, parts = (group + kAttendQueries - 1) / kAttendQueries;
  const int kv_head = blockIdx.x / parts, part = blockIdx.x % parts * kAttendQueries,
            head = kv_head * group + part;
  const int count = positions_of(a, t), split = blockIdx.z;
  const GroupSource source{
      a,     t,     head,  kv_head, a.sequence_of[t], a.visible[t] - count, min(kAttendQueries, group - part),
      count, a.dim, a.dim, a.scale};
  if (partials == nullptr) return attend<kOut>(source, shared);
  if (count == 0 || split >= splits_of(count)) return;
  const int64_t stride = kSplitsMax * (int64_t(a.dim) + 2);
  attend<kOut>(source, shared,
               partials + (int64_t(blockIdx.y) * a.heads + head) * stride + split * (int64_t(a.dim) + 2),
               stride, split);
}

}  // namespace

void cuda::gqa_attention(const GqaAttentionArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const auto kernel = attend_kernel_for(a.dim, gqa_attention_kernel<2>, gqa_attention_kernel<8>,
                                        gqa_attention_kernel<16>, gqa_attention_kernel<32>);
  const unsigned blocks = unsigned(a.kv_heads * ceil_div(a.group(), kAttendQueries));
  const size_t shared = attend_shared_bytes(a.dim, a.dim, true);
  auto* partials = static_cast<float*>(cuda_queue.scratch());
  const int64_t of_token = a.heads * partial_floats(a.dim);
  const int64_t at_once = int64_t(cuda_queue.scratch_bytes() / sizeof(float)) / of_token;
  if (a.tokens > kSplitTokensMax || at_once == 0)
    return launch(queue, dim3(blocks, unsigned(a.tokens)), kAttendThreads, shared, kernel, a, 0, nullptr);

  for (int64_t first = 0; first < a.tokens; first += at_once) {
    const int tokens = int(a.tokens - first < at_once ? a.tokens - first : at_once);
    launch(queue, dim3(blocks, unsigned(tokens), kSplitsMax), kAttendThreads, shared, kernel, a, int(first),
           partials);
    merge_splits(
        queue, partials, tokens, a.heads, a.dim,
        [a, first] __device__(int64_t t) { return positions_of(a, first + t); },
        [a] __device__(int h) { return a.sinks ? a.sinks[h] : -INFINITY; },
        [a, first] __device__(int64_t t, int h) { return a.o + ((first + t) * a.heads + h) * a.dim; });
  }
}

}  // namespace dsa
