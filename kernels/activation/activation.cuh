// kernels/activation/activation.cuh: the activation of one value, for kernels that take it on their way.
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

__device__ inline float situ(const ActivationForm& form, float gate, float up) {
  const float capped_gate = form.beta * tanhf(gate / form.beta);
  const float capped_up = form.linear_beta == 0 ? up : form.linear_beta * tanhf(up / form.linear_beta);
  return capped_gate * sigmoid(gate) * capped_up;
}

__device__ inline float swiglu(const ActivationForm& form, float gate, float up) {
  const float limit = form.limit;
  if (limit != 0) {  // comparisons that keep NaN
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return gate * sigmoid(gate) * up;
}

__device__ inline float activate(const ActivationForm& form, float gate, float up) {
  return form.kind == ActivationKind::situ ? situ(form, gate, up) : swiglu(form, gate, up);
}

}  // namespace dsa
