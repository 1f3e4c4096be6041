// kernels/softmax_router/softmax_router.cu: one warp a token, in top_k rounds.
#include "kernels/common/best.cuh"
#include "kernels/softmax_router/softmax_router.h"

namespace dsa {
namespace {

__global__ void __launch_bounds__(kWarp) softmax_router_kernel(const __grid_constant__ SoftmaxRouterArgs a) {
  float* left = dynamic_shared<float>();  // [experts]  logits, NaN once chosen
  begin_kernel();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x;
  const float* logits = a.logits + t * a.experts;
  int32_t* ids = a.expert_ids + t * a.top_k;
  float* weights = a.expert_weights + t * a.top_k;

  int finite = 0, chosen = 0;
  for (int e = lane; e < a.experts; e += kWarp) {
    left[e] = logits[e];
    finite += isfinite(logits[e]);
  }
  finite = __reduce_add_sync(kAllLanes, finite);
  __syncwarp();
  while (chosen < a.top_k) {
    const int e = best_of(left, a.experts, lane);
    if (e < 0) break;
    __syncwarp();
    if (lane == 0) ids[chosen] = e, left[e] = NAN;
    __syncwarp();
    ++chosen;
  }
  if (lane > 0) return;

  complete_with_lowest(ids, chosen, a.top_k);
  float total = 0;
  const auto weight = [&](int slot) { return expf(logits[ids[slot]] - logits[ids[0]]); };
  for (int slot = 0; slot < a.top_k; ++slot) total += weight(slot);
  for (int slot = 0; slot < a.top_k; ++slot) weights[slot] = finite < a.top_k ? NAN : weight(slot) / total;
}

}  // namespace

void cuda::softmax_router(const SoftmaxRouterArgs& a, Queue& queue) {
  launch(queue, unsigned(a.tokens), kWarp, sizeof(float) * size_t(a.experts), softmax_router_kernel, a);
}

}  // namespace dsa
