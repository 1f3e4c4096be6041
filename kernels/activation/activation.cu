// kernels/activation/activation.cu: one thread a value.
#include "kernels/activation/activation.cuh"

namespace dsa {

void cuda::activation(const ActivationArgs& a, Queue& queue) {
  each(queue, a.rows * a.dim, [a] __device__(int64_t i) { a.y[i] = activate(a.form, a.gate[i], a.up[i]); });
}

}  // namespace dsa
