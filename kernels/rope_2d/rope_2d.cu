// kernels/rope_2d/rope_2d.cu: one thread a pair.
#include "kernels/common/cuda.cuh"
#include "kernels/rope_2d/rope_2d.h"

namespace dsa {

void cuda::rope_2d(const Rope2dArgs& a, Queue& queue) {
  const int64_t pairs = a.dim / 2;
  each(queue, a.tokens * a.heads * pairs, [a, pairs] __device__(int64_t index) {
    const int j = int(index % pairs), h = int(index / pairs % a.heads), quarter = a.dim / 4;
    const int64_t t = index / pairs / a.heads;
    const bool halves = a.kind == Rope2dKind::halves;
    const bool by_row = halves ? j < quarter : j % 2 == 1;
    const float* turns =
        a.turns + int64_t(by_row ? a.rows[t] : a.columns[t]) * pairs + (halves ? j % quarter : j / 2);
    const float cosine = turns[0], sine = turns[quarter];
    float* head = a.x + t * a.token_stride + h * a.head_stride;
    float &first = head[halves ? j : 2 * j], &second = head[halves ? j + pairs : 2 * j + 1];
    const float x = first, y = second;
    first = x * cosine - y * sine;
    second = x * sine + y * cosine;
  });
}

}  // namespace dsa
