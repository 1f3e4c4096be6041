// kernels/sparse_attention/sparse_attention.cu: one block for 8 heads of a token, or, for few tokens, for one split of
// its positions. Unused slots are taken out of the lists first, so that the sums do not see them.
#include "kernels/common/attention.cuh"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace {

struct LatentSource {
  static constexpr bool kValuesApart = false;
  const SparseAttentionArgs& a;
  int64_t t;
  int head, sequence;
  const int32_t* positions;  // null: 0, 1, 2 ..
  int queries, count, k_dim, v_dim;
  float scale;

  __device__ float query(int i, int d) const {
    const int h = head + i;
    return d < a.latent_dim
               ? a.q_latent[(t * a.heads + h) * a.latent_dim + d]
               : a.q_rope[t * a.q_rope_token_stride + h * a.q_rope_head_stride + d - a.latent_dim];
  }
  __device__ CacheRow key(int p) const { return a.latents.row(sequence, positions ? positions[p] : p); }
  __device__ CacheRow value(int) const { return {}; }
  __device__ float sink(int) const { return -INFINITY; }
  __device__ void store(int i, int d, float y) const { a.o[(t * a.heads + head + i) * a.latent_dim + d] = y; }
};

// Lists hold their length first, then the positions.
__device__ int positions_of(const SparseAttentionArgs& a, const int32_t* lists, int64_t first, int64_t t) {
  return lists ? lists[t * (int64_t(a.top_k) + 1)] : a.visible[first + t];
}

// Grid (ceil(heads / 8), tokens, splits if there are partials). Reads each row once per block. Token `first` is the
// first of the grid, of the lists and of the partials.
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, int first, const int32_t* lists,
                            float* partials) {
  float* shared = dynamic_shared<float>();
  begin_kernel();
  const int64_t t = first + blockIdx.y;
  const int head = blockIdx.x * kAttendQueries, split = blockIdx.z,
            count = positions_of(a, lists, first, blockIdx.y);
  const LatentSource source{a,
                            t,
                            head,
                            a.sequence_of[t],
                            lists ? lists + blockIdx.y * (int64_t(a.top_k) + 1) + 1 : nullptr,
                            min(kAttendQueries, a.heads - head),
                            count,
                            a.latent_dim + a.rope_dim,
                            a.latent_dim,
                            a.scale};
  if (partials == nullptr) return attend<kOut>(source, shared);
  if (count == 0 || split >= splits_of(count)) return;
  const int64_t of_split = int64_t(a.latent_dim) + 2;
  attend<kOut>(source, shared,
               partials + ((int64_t(blockIdx.y) * a.heads + head) * kSplitsMax + split) * of_split,
               kSplitsMax * of_split, split);
}

// Takes the unused slots out of the lists of `tokens` tokens.
void compact(const int32_t* selected, int32_t* lists, int64_t tokens, int64_t slots, Queue& queue) {
  each_warp(queue, tokens, [lists, selected, slots] __device__(int64_t t, int lane) {
    int32_t* list = lists + t * (slots + 1);
    int used = 0;
    for (int64_t begin = 0; begin < slots; begin += kWarp) {
      const int32_t p = begin + lane < slots ? selected[t * slots + begin + lane] : -1;
      const unsigned taken = __ballot_sync(kAllLanes, p >= 0);
      if (p >= 0) list[1 + used + __popc(taken & ((1u << lane) - 1))] = p;
      used += __popc(taken);
    }
    if (lane == 0) list[0] = used;
  });
}

}  // namespace

void cuda::sparse_attention(const SparseAttentionArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const auto kernel = attend_kernel_for(a.latent_dim, sparse_attention_kernel<2>, sparse_attention_kernel<8>,
                                        sparse_attention_kernel<16>, sparse_attention_kernel<32>);
  const size_t shared = attend_shared_bytes(a.latent_dim + a.rope_dim, a.latent_dim, false);
  const unsigned blocks = unsigned(ceil_div(a.heads, kAttendQueries));

  // The scratch memory holds the lists and the partial results of as many tokens as fit.
  const bool split = a.tokens <= kSplitTokensMax;
  const int64_t slots = a.top_k, list_ints = a.selected ? ceil_div(slots + 1, 64) * 64 : 0;
  const int64_t of_token = list_ints + (split ? a.heads * partial_floats(a.latent_dim) : 0);
  const int64_t fit =
      of_token > 0 ? int64_t(cuda_queue.scratch_bytes() / sizeof(float)) / of_token : a.tokens;
  const int64_t at_once = fit > 1 ? fit : 1;
  for (int64_t first = 0; first < a.tokens; first += at_once) {
    const int64_t tokens = a.tokens - first < at_once ? a.tokens - first : at_once;
    auto* lists = a.selected ? static_cast<int32_t*>(cuda_queue.scratch()) : nullptr;
    auto* partials = split ? static_cast<float*>(cuda_queue.scratch()) + tokens * list_ints : nullptr;
    if (lists) compact(a.selected + first * slots, lists, tokens, slots, queue);
    const int bound = a.selected ? splits_of(a.top_k) : kSplitsMax;
    launch(queue, dim3(blocks, unsigned(tokens), split ? unsigned(bound) : 1), kAttendThreads, shared, kernel,
           a, int(first), static_cast<const int32_t*>(lists), partials);
    if (split)
      merge_splits(
          queue, partials, int(tokens), a.heads, a.latent_dim,
          [a, lists, first] __device__(int64_t t) { return positions_of(a, lists, first, t); },
          [] __device__(int) { return -INFINITY; },
          [a, first] __device__(int64_t t, int h) {
            return a.o + ((first + t) * a.heads + h) * a.latent_dim;
          });
  }
}

}  // namespace dsa
