// kernels/head_norm/head_norm_simd.cc: tokens go to the threads.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/head_norm/head_norm.h"

namespace dsa {
namespace DSA_ISA {

void head_norm(const HeadNormArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    for (int h = 0; h < a.heads; ++h) {
      float* x = a.x + t * a.token_stride + h * a.head_stride;
      const Vec scale = set(1 / std::sqrt(dot(x, x, a.dim) / float(a.dim) + a.eps));
      for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
        store(mul(mul(load(x + d, n), scale), load(a.weight + d, n)), x + d, n);
      });
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
