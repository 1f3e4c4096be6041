// kernels/activation/activation_ref.cc: plain loops, f64 values, one thread.
#include "kernels/activation/activation.h"
#include "kernels/common/functions.h"

namespace dsa {
namespace {

double situ(const ActivationForm& form, double gate, double up) {
  const double capped_gate = form.beta * std::tanh(gate / form.beta);
  const double capped_up = form.linear_beta == 0 ? up : form.linear_beta * std::tanh(up / form.linear_beta);
  return capped_gate * sigmoid(gate) * capped_up;
}

double swiglu(const ActivationForm& form, double gate, double up) {
  const double limit = form.limit;
  if (limit != 0) {  // comparisons that keep NaN
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return gate * sigmoid(gate) * up;
}

}  // namespace

void ref::activation(const ActivationArgs& a, Queue&) {
  for (int64_t i = 0; i < a.rows * a.dim; ++i)
    a.y[i] = float(a.form.kind == ActivationKind::situ ? situ(a.form, a.gate[i], a.up[i])
                                                       : swiglu(a.form, a.gate[i], a.up[i]));
}

}  // namespace dsa
