// kernels/sigmoid_gate/sigmoid_gate.cu: one thread a value.
#include "kernels/common/cuda.cuh"
#include "kernels/sigmoid_gate/sigmoid_gate.h"

namespace dsa {

void cuda::sigmoid_gate(const SigmoidGateArgs& a, Queue& queue) {
  each(queue, a.rows * a.dim, [a] __device__(int64_t i) { a.y[i] = a.x[i] * sigmoid(a.gate[i]); });
}

}  // namespace dsa
