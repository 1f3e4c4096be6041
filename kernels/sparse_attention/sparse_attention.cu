// kernels/sparse_attention/sparse_attention.cu: one block for 8 heads of a token. Unused slots are taken out of the lists
// first, so that the sums do not see them.
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
  __device__ const float* key(int p) const { return a.latents.row(sequence, positions ? positions[p] : p); }
  __device__ const float* value(int) const { return nullptr; }
  __device__ float sink(int) const { return -INFINITY; }
  __device__ void store(int i, int d, float y) const { a.o[(t * a.heads + head + i) * a.latent_dim + d] = y; }
};

// Grid (ceil(heads / 8), tokens). Reads each row once per block. Lists hold their length first, then the positions.
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    sparse_attention_kernel(const __grid_constant__ SparseAttentionArgs a, const int32_t* lists, int first) {
  extern __shared__ float shared[];
  begin_kernel();
  const int64_t t = first + blockIdx.y;
  const int head = blockIdx.x * kAttendQueries;
  const int32_t* list = lists ? lists + blockIdx.y * (int64_t(a.top_k) + 1) : nullptr;
  attend<kOut>(LatentSource{a, t, head, a.sequence_of[t], list ? list + 1 : nullptr,
                            min(kAttendQueries, a.heads - head), list ? list[0] : a.visible[t],
                            a.latent_dim + a.rope_dim, a.latent_dim, a.scale},
               shared);
}

}  // namespace

void cuda::sparse_attention(const SparseAttentionArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const auto kernel = attend_kernel_for(a.latent_dim, sparse_attention_kernel<2>, sparse_attention_kernel<8>,
                                        sparse_attention_kernel<16>, sparse_attention_kernel<32>);
  const size_t shared = attend_shared_bytes(a.latent_dim + a.rope_dim, a.latent_dim, false);
  const unsigned head_blocks = unsigned(ceil_div(a.heads, kAttendQueries));
  if (a.selected == nullptr)
    return launch(queue, dim3(head_blocks, unsigned(a.tokens)), kAttendThreads, shared, kernel, a, nullptr,
                  0);

  auto* lists = static_cast<int32_t*>(cuda_queue.scratch());
  const int64_t slots = a.top_k,
                at_once = int64_t(cuda_queue.scratch_bytes() / sizeof(int32_t)) / (slots + 1);
  for (int64_t first = 0; first < a.tokens; first += at_once) {
    const int64_t tokens = a.tokens - first < at_once ? a.tokens - first : at_once;
    const int32_t* selected = a.selected + first * slots;
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
    launch(queue, dim3(head_blocks, unsigned(tokens)), kAttendThreads, shared, kernel, a,
           static_cast<const int32_t*>(lists), int(first));
  }
}

}  // namespace dsa
