// kernels/sigmoid_gate/sigmoid_gate_ref.cc: plain loop, f64 values, one thread.
#include "kernels/common/functions.h"
#include "kernels/sigmoid_gate/sigmoid_gate.h"

namespace dsa {

void ref::sigmoid_gate(const SigmoidGateArgs& a, Queue&) {
  for (int64_t i = 0; i < a.rows * a.dim; ++i) a.y[i] = float(a.x[i] * sigmoid(a.gate[i]));
}

}  // namespace dsa
