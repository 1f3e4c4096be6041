// kernels/alpha_swiglu/alpha_swiglu_simd.cc: blocks of values go to the threads.
#include "kernels/alpha_swiglu/alpha_swiglu.h"
#include "kernels/common/simd.h"

namespace dsa {
namespace DSA_ISA {
namespace {

Vec at_most(Vec v, Vec limit) { return hn::IfThenElse(hn::Gt(v, limit), limit, v); }
Vec at_least(Vec v, Vec limit) { return hn::IfThenElse(hn::Lt(v, limit), limit, v); }

Vec activate(const AlphaSwigluArgs& a, Vec gate, Vec up) {
  const Vec g = at_most(gate, set(a.limit)), u = at_least(at_most(up, set(a.limit)), set(-a.limit));
  return mul(mul(g, sigmoid(mul(set(a.alpha), g))), add(u, set(1.f)));
}

}  // namespace

void alpha_swiglu(const AlphaSwigluArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 2048;  // values
  const int64_t count = a.rows * a.dim;
  queue.parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = block * kBlock + kBlock < count ? block * kBlock + kBlock : count;
    for_each_vector(block * kBlock, end, [&](int64_t i, size_t n) {
      Vec gate, up;
      if (n == lanes()) {
        hn::LoadInterleaved2(F32(), a.x + 2 * i, gate, up);
      } else {
        HWY_ALIGN float gates[kLanes] = {}, ups[kLanes] = {};
        for (size_t j = 0; j < n; ++j) gates[j] = a.x[2 * (i + j)], ups[j] = a.x[2 * (i + j) + 1];
        gate = load(gates), up = load(ups);
      }
      store(activate(a, gate, up), a.y + i, n);
    });
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
