// kernels/gelu/gelu.cu: one thread a value.
#include "kernels/common/cuda.cuh"
#include "kernels/gelu/gelu.h"

namespace dsa {

void cuda::gelu(const GeluArgs& a, Queue& queue) {
  each(queue, a.count, [a] __device__(int64_t i) {
    constexpr float kRootHalf = 0.70710678118654752f, kTwoRootTwoOverPi = 1.5957691216057308f;
    const float x = a.x[i];
    // 1 + erf and 1 + tanh, written so that nothing cancels where they are near zero.
    const float twice = a.kind == GeluKind::exact
                            ? erfcf(-x * kRootHalf)
                            : 2 / (1 + expf(-kTwoRootTwoOverPi * (x + 0.044715f * x * x * x)));
    a.y[i] = x / 2 * twice;
  });
}

}  // namespace dsa
