// kernels/rope/rope.cu: one block a token. The turns are computed once, in f64, for all of its heads.
#include "kernels/common/cuda.cuh"
#include "kernels/rope/rope.h"

namespace dsa {

void cuda::rope(const RopeArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(int64_t(a.heads) * a.dim / 2), [a] __device__(int64_t t) {
    __shared__ float cosine[kRopeDimMax / 2], sine[kRopeDimMax / 2];
    const int pairs = a.dim / 2;
    const int next = a.kind == RopeKind::pairs ? 2 : 1, partner = a.kind == RopeKind::pairs ? 1 : pairs;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
      const float angle = float(a.positions[t]) * a.frequencies[i];
      double s, c;
      sincos(double(angle), &s, &c);
      cosine[i] = float(a.amplitude * c), sine[i] = float(a.amplitude * s);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < a.heads * pairs; j += blockDim.x) {
      const int i = j % pairs;
      float* at = a.x + t * a.token_stride + j / pairs * a.head_stride + i * next;
      const float x = at[0], y = at[partner];
      at[0] = x * cosine[i] - y * sine[i];
      at[partner] = x * sine[i] + y * cosine[i];
    }
  });
}

}  // namespace dsa
