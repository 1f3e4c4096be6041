// kernels/rope_2d/rope_2d_simd.cc: a token's turns are laid out once, as its pairs lie, for all of its heads.
#include "kernels/common/simd.h"
#include "kernels/rope_2d/rope_2d.h"

namespace dsa {
namespace DSA_ISA {

void rope_2d(const Rope2dArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int pairs = a.dim / 2, quarter = a.dim / 4;
    HWY_ALIGN float cosine[kRope2dDimMax / 2], sine[kRope2dDimMax / 2];
    const float *column = a.turns_of(a.columns[t]), *row = a.turns_of(a.rows[t]);
    for (int i = 0; i < quarter; ++i) {
      cosine[2 * i] = column[i], cosine[2 * i + 1] = row[i];
      sine[2 * i] = column[quarter + i], sine[2 * i + 1] = row[quarter + i];
    }
    for (int h = 0; h < a.heads; ++h) {
      float* head = a.x + t * a.stride + h * a.dim;
      int j = 0;
      for (; j + kLanes <= pairs; j += kLanes) {
        Vec x, y;
        hn::LoadInterleaved2(F32(), head + 2 * j, x, y);
        const Vec c = load(cosine + j), s = load(sine + j);
        hn::StoreInterleaved2(sub(mul(x, c), mul(y, s)), fma(x, s, mul(y, c)), F32(), head + 2 * j);
      }
      for (; j < pairs; ++j) {
        const float x = head[2 * j], y = head[2 * j + 1];
        head[2 * j] = x * cosine[j] - y * sine[j];
        head[2 * j + 1] = x * sine[j] + y * cosine[j];
      }
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
