// kernels/alpha_swiglu/alpha_swiglu.cu: one thread a value.
#include "kernels/alpha_swiglu/alpha_swiglu.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

void cuda::alpha_swiglu(const AlphaSwigluArgs& a, Queue& queue) {
  each(queue, a.rows * a.dim, [a] __device__(int64_t i) {
    const float gate = a.x[2 * i], up = a.x[2 * i + 1];
    const float g = gate > a.limit ? a.limit : gate;
    const float u = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
    a.y[i] = g * sigmoid(a.alpha * g) * (u + 1);
  });
}

}  // namespace dsa
