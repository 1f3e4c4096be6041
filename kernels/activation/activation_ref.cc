// kernels/activation/activation_ref.cc: plain loops, f64 values, one thread.
#include "kernels/activation/activation.h"
#include "kernels/common/functions.h"

namespace dsa {

void ref::activation(const ActivationArgs& a, Queue&) {
  for (int64_t i = 0; i < a.rows * a.dim; ++i) {
    const double gate = a.gate[i], up = a.up[i];
    const double capped_gate = a.beta * std::tanh(gate / a.beta);
    const double capped_up = a.linear_beta == 0 ? up : a.linear_beta * std::tanh(up / a.linear_beta);
    a.y[i] = float(capped_gate * sigmoid(gate) * capped_up);
  }
}

}  // namespace dsa
