// kernels/router/router.cu: one block a token. All of it takes the sigmoids, in f64, so that ties and near ties fall as in the
// reference; one warp then chooses, in top_k rounds, from what its lanes hold in registers.
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

// Integers in the order of the floats, all above that of nothing.
constexpr int kNothing = -0x7fffffff - 1;
__device__ int in_order(float value) {
  const auto bits = int(f32_to_bits(value + 0.f));  // no negative zero
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// Chooses up to top_k ids, the most wanted first, the lower of equals; returns how many there were. A lane
// holds up to kHeld experts; 0: none, there are too many.
template <int kHeld>
__device__ int choose(float* wanted, int experts, int top_k, int lane, int32_t* ids) {
  int chosen = 0;
  if constexpr (kHeld == 0) {
    for (; chosen < top_k; ++chosen) {
      const int e = best_of(wanted, experts, lane);
      if (e < 0) break;
      __syncwarp();
      if (lane == 0) ids[chosen] = e, wanted[e] = NAN;
      __syncwarp();
    }
    return chosen;
  }
  int ranks[kHeld + 1];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int e = lane + kWarp * i;
    ranks[i] = e < experts && wanted[e] == wanted[e] ? in_order(wanted[e]) : kNothing;
  }
  for (; chosen < top_k; ++chosen) {
    int best = kNothing, mine = experts;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) best = max(best, ranks[i]);
    best = __reduce_max_sync(kAllLanes, best);
    if (best == kNothing) break;
#pragma unroll
    for (int i = kHeld - 1; i >= 0; --i) mine = ranks[i] == best ? lane + kWarp * i : mine;
    const int e = __reduce_min_sync(kAllLanes, mine);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) ranks[i] = e == lane + kWarp * i ? kNothing : ranks[i];
    if (lane == 0) ids[chosen] = e;
  }
  return chosen;
}

constexpr int kThreads = 256;

// Shared s, wanted [experts], ids [top_k].
template <int kHeld>
__global__ void __launch_bounds__(kThreads) router_kernel(const __grid_constant__ RouterArgs a) {
  float *s = dynamic_shared<float>(), *wanted = s + a.experts;
  auto* chosen_ids = reinterpret_cast<int32_t*>(wanted + a.experts);
  start_next_kernel();
  wait_for_kernel_before();
  const int64_t t = blockIdx.x;
  const int lane = threadIdx.x % kWarp;
  const float* logits = a.logits + t * a.experts;

  for (int e = threadIdx.x; e < a.experts; e += kThreads) {
    s[e] = float(1 / (1 + exp(-double(logits[e]))));
    wanted[e] = a.bias ? s[e] + a.bias[e] : s[e];
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  if (a.top_groups < a.groups) close_groups(a, wanted, lane);
  int finite = 0;
  for (int e = lane; e < a.experts; e += kWarp) finite += wanted[e] == wanted[e] && isfinite(logits[e]);
  finite = __reduce_add_sync(kAllLanes, finite);

  const int chosen = choose<kHeld>(wanted, a.experts, a.top_k, lane, chosen_ids);
  __syncwarp();
  if (lane == 0) complete_with_lowest(chosen_ids, chosen, a.top_k);
  __syncwarp();
  double sum = 0;
#pragma unroll 8
  for (int slot = 0; slot < a.top_k; ++slot) sum += s[chosen_ids[slot]];
  const double factor = a.renormalize ? a.scale / (sum + 1e-20) : a.scale;
  for (int slot = lane; slot < a.top_k; slot += kWarp) {
    a.expert_ids[t * a.top_k + slot] = chosen_ids[slot];
    a.expert_weights[t * a.top_k + slot] = finite < a.top_k ? NAN : float(s[chosen_ids[slot]] * factor);
  }
}

}  // namespace

void cuda::router(const RouterArgs& a, Queue& queue) {
  launch(queue, unsigned(a.tokens), kThreads,
         2 * sizeof(float) * size_t(a.experts) + sizeof(int32_t) * size_t(a.top_k),
         a.experts <= 8 * kWarp    ? router_kernel<8>
         : a.experts <= 32 * kWarp ? router_kernel<32>
                                   : router_kernel<0>,
         a);
}

}  // namespace dsa
