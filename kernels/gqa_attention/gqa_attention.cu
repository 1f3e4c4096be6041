// kernels/gqa_attention/gqa_attention.cu: one block for up to 8 query heads of a token that share a key and value head,
// or, for few tokens, for one split of their keys; on the fast route, for the heads of as many tokens as make 128 queries.
#include "kernels/common/attention.cuh"
#include "kernels/common/attention_f16.cuh"
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

// Query i is head i % group of token t + i / group; see common/attention_f16.cuh.
template <class T>
struct PromptRows {
  using Value = T;
  const GqaAttentionArgs& a;
  int t, tokens, kv_head, sequence, group, lowest;  // the first position that anyone sees
  int dim;
  float scale;
  int begin, end;

  __device__ F16Rows<T> rows(int p) const {
    const int64_t at = int64_t(kv_head) * a.dim;
    return {a.k.template values<T>(sequence, p) + at,
            a.v.template values<T>(sequence, p) + at,
            a.k.dim,
            a.v.dim,
            max(0, lowest - p),
            min(kF16Keys, end - p)};
  }
  __device__ int64_t head_of(int i) const {
    return int64_t(t + i / group) * a.heads + kv_head * group + i % group;
  }
  __device__ const float* query(int i) const {
    return i / group < tokens ? a.q + head_of(i) * a.dim : nullptr;
  }
  __device__ F16Sight sight(int i) const {
    const int until = a.visible[t + i / group];
    return {a.window > 0 ? max(0, until - a.window) : 0, until};
  }
  __device__ float sink(int i) const { return a.sinks ? a.sinks[kv_head * group + i % group] : -INFINITY; }
  __device__ float* out(int i) const { return a.o + head_of(i) * a.dim; }
};

// Grid (ceil(tokens / (kF16Queries / group)), kv_heads), the last tokens first. Tokens of one sequence that lie together
// read its rows together.
template <class T, int kDim>
__global__ void __launch_bounds__(kF16Warps* kWarp, kDim <= 64 ? 2 : 1)
    gqa_attention_fast_kernel(const __grid_constant__ GqaAttentionArgs a) {
  auto* tiles = dynamic_shared<F16Tile<kDim>>();
  begin_kernel();
  const int group = a.heads / a.kv_heads, at_once = kF16Queries / group;
  const int first = int(gridDim.x - 1 - blockIdx.x) * at_once, last = min(first + at_once, a.tokens);
  for (int t = first; t < last;) {
    const int sequence = a.sequence_of[t];
    int n = 0, begin = a.visible[t], end = 0;
    for (; t + n < last && a.sequence_of[t + n] == sequence; ++n) {
      const int until = a.visible[t + n];
      begin = min(begin, a.window > 0 ? max(0, until - a.window) : 0), end = max(end, until);
    }
    attend_f16<kDim>(PromptRows<T>{a, t, n, int(blockIdx.y), sequence, group, begin, a.dim, a.scale,
                                   begin / kF16Keys * kF16Keys, end},
                     tiles);
    t += n;
  }
}

bool aligned_rows(const PagedRows& rows) {
  return rows.page_rows == kF16Keys && rows.dim % 4 == 0 && rows.page_stride % 16 == 0 &&
         uint64_t(rows.pages) % 16 == 0;
}
// Prompts rather than single tokens of many sequences.
bool takes_fast(const GqaAttentionArgs& a) {
  return a.route == Route::fast && a.tokens > kSplitTokensMax && a.tokens >= 4 * a.num_sequences &&
         a.dim <= kF16DimMax && a.dim % 4 == 0 && a.group() <= kF16Queries && aligned_rows(a.k) &&
         aligned_rows(a.v) && (uint64_t(a.q) | uint64_t(a.o)) % 16 == 0;
}

}  // namespace

void cuda::gqa_attention(const GqaAttentionArgs& a, Queue& queue) {
  if (takes_fast(a)) {
    const auto fast =
        a.k.format == CacheFormat::bf16
            ? f16_launch_for(a.dim, gqa_attention_fast_kernel<bf16, 64>, gqa_attention_fast_kernel<bf16, 96>,
                             gqa_attention_fast_kernel<bf16, 128>)
            : f16_launch_for(a.dim, gqa_attention_fast_kernel<float, 64>,
                             gqa_attention_fast_kernel<float, 96>, gqa_attention_fast_kernel<float, 128>);
    const unsigned blocks = unsigned(ceil_div(a.tokens, kF16Queries / a.group()));
    return launch(queue, dim3(blocks, unsigned(a.kv_heads)), kF16Warps * kWarp, fast.shared, fast.kernel, a);
  }
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
