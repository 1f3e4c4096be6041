// kernels/activation/activation.cu: one thread a value.
#include "kernels/activation/activation.h"
#include "kernels/common/cuda.cuh"

namespace dsa {
namespace {

__device__ float situ(const ActivationForm& form, float gate, float up) {
  const float capped_gate = form.beta * tanhf(gate / form.beta);
  const float capped_up = form.linear_beta == 0 ? up : form.linear_beta * tanhf(up / form.linear_beta);
  return capped_gate * sigmoid(gate) * capped_up;
}

__device__ float swiglu(const ActivationForm& form, float gate, float up) {
  const float limit = form.limit;
  if (limit != 0) {  // comparisons that keep NaN
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return gate * sigmoid(gate) * up;
}

}  // namespace

void cuda::activation(const ActivationArgs& a, Queue& queue) {
  each(queue, a.rows * a.dim, [a] __device__(int64_t i) {
    a.y[i] = a.form.kind == ActivationKind::situ ? situ(a.form, a.gate[i], a.up[i])
                                                 : swiglu(a.form, a.gate[i], a.up[i]);
  });
}

}  // namespace dsa
