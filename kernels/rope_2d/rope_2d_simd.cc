// kernels/rope_2d/rope_2d_simd.cc: a token's turns are laid out once, as its pairs lie, for all of its heads.
#include "kernels/common/simd.h"
#include "kernels/rope_2d/rope_2d.h"

namespace dsa {
namespace DSA_ISA {

namespace {

// The turns of one token, as its pairs lie.
struct Turns {
  HWY_ALIGN float cosine[kRope2dDimMax / 2], sine[kRope2dDimMax / 2];

  Turns(const Rope2dArgs& a, int64_t t) {
    const int quarter = a.dim / 4;
    const float *column = a.turns_of(a.columns[t]), *row = a.turns_of(a.rows[t]);
    for (int i = 0; i < quarter; ++i) {
      if (a.kind == Rope2dKind::halves) {
        cosine[i] = row[i], cosine[quarter + i] = column[i];
        sine[i] = row[quarter + i], sine[quarter + i] = column[quarter + i];
      } else {
        cosine[2 * i] = column[i], cosine[2 * i + 1] = row[i];
        sine[2 * i] = column[quarter + i], sine[2 * i + 1] = row[quarter + i];
      }
    }
  }
};

void turn_pairs(const Turns& turns, int pairs, float* head) {
  int j = 0;
  for (; j + kLanes <= pairs; j += kLanes) {
    Vec x, y;
    hn::LoadInterleaved2(F32(), head + 2 * j, x, y);
    const Vec c = load(turns.cosine + j), s = load(turns.sine + j);
    hn::StoreInterleaved2(sub(mul(x, c), mul(y, s)), fma(x, s, mul(y, c)), F32(), head + 2 * j);
  }
  for (; j < pairs; ++j) {
    const float x = head[2 * j], y = head[2 * j + 1];
    head[2 * j] = x * turns.cosine[j] - y * turns.sine[j];
    head[2 * j + 1] = x * turns.sine[j] + y * turns.cosine[j];
  }
}

void turn_halves(const Turns& turns, int pairs, float* head) {
  for_each_vector(0, pairs, [&](int64_t j, size_t n) {
    const Vec x = load(head + j, n), y = load(head + pairs + j, n);
    const Vec c = load(turns.cosine + j, n), s = load(turns.sine + j, n);
    store(sub(mul(x, c), mul(y, s)), head + j, n);
    store(fma(x, s, mul(y, c)), head + pairs + j, n);
  });
}

}  // namespace

void rope_2d(const Rope2dArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const Turns turns(a, t);
    for (int h = 0; h < a.heads; ++h) {
      float* head = a.x + t * a.token_stride + h * a.head_stride;
      a.kind == Rope2dKind::halves ? turn_halves(turns, a.dim / 2, head) : turn_pairs(turns, a.dim / 2, head);
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
