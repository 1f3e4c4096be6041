// kernels/router/router.cu: one warp a token, in top_k rounds. Sigmoids are f64, so that ties and near ties fall as in
// the reference.
#include "kernels/common/best.cuh"
#include "kernels/router/router.h"

namespace dsa {
namespace {

// Values of experts in groups that are not open become NaN.
__device__ void close_groups(const RouterArgs& a, float* wanted, int lane) {
  __shared__ float sums[kRouterGroupsMax];
  const int size = a.experts / a.groups;
  for (int g = lane; g < a.groups; g += kWarp) {
    float best = -INFINITY, second = size > 1 ? -INFINITY : 0;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (wanted[e] > best) {
        if (size > 1) second = best;
        best = wanted[e];
      } else if (wanted[e] > second) {
        second = wanted[e];
      }
    }
    sums[g] = best + second;
  }
  __syncwarp();
  uint64_t open = 0;
  for (int i = 0; i < a.top_groups; ++i) {
    const int g = best_of(sums, a.groups, lane);
    open |= uint64_t{1} << g;
    __syncwarp();
    if (lane == 0) sums[g] = NAN;
    __syncwarp();
  }
  for (int e = lane; e < a.experts; e += kWarp)
    if (!(open >> e / size & 1)) wanted[e] = NAN;
  __syncwarp();
}

__global__ void __launch_bounds__(kWarp) router_kernel(const __grid_constant__ RouterArgs a) {
  float* shared = dynamic_shared<float>();
  float *s = shared, *wanted = shared + a.experts;  // [experts] each
  begin_kernel();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x;
  const float* logits = a.logits + t * a.experts;
  int32_t* ids = a.expert_ids + t * a.top_k;
  float* weights = a.expert_weights + t * a.top_k;

  for (int e = lane; e < a.experts; e += kWarp) {
    s[e] = float(1 / (1 + exp(-double(logits[e]))));
    wanted[e] = a.bias ? s[e] + a.bias[e] : s[e];
  }
  __syncwarp();
  if (a.top_groups < a.groups) close_groups(a, wanted, lane);
  int finite = 0;
  for (int e = lane; e < a.experts; e += kWarp) finite += wanted[e] == wanted[e] && isfinite(logits[e]);
  finite = __reduce_add_sync(kAllLanes, finite);

  int chosen = 0;
  while (chosen < a.top_k) {
    const int e = best_of(wanted, a.experts, lane);
    if (e < 0) break;
    __syncwarp();
    if (lane == 0) ids[chosen] = e, wanted[e] = NAN;
    __syncwarp();
    ++chosen;
  }
  if (lane > 0) return;

  complete_with_lowest(ids, chosen, a.top_k);
  double sum = 0;
  for (int slot = 0; slot < a.top_k; ++slot) sum += s[ids[slot]];
  const double factor = a.renormalize ? a.scale / (sum + 1e-20) : a.scale;
  for (int slot = 0; slot < a.top_k; ++slot)
    weights[slot] = finite < a.top_k ? NAN : float(s[ids[slot]] * factor);
}

}  // namespace

void cuda::router(const RouterArgs& a, Queue& queue) {
  launch(queue, unsigned(a.tokens), kWarp, 2 * sizeof(float) * size_t(a.experts), router_kernel, a);
}

}  // namespace dsa
