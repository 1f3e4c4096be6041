// kernels/activation/activation.h: the gated activation between the two products of a feed-forward block.
//
//   situ:  y = [ beta tanh(gate / beta) sigmoid(gate) ] * [ linear_beta tanh(up / linear_beta) ]
//          The sigmoid takes the uncapped gate. linear_beta 0: `up` passes unchanged.
//   swiglu:  y = g sigmoid(g) u,  g = min(gate, limit),  u = min(max(up, -limit), limit)
//          The gate has no lower limit. limit 0: neither is limited.
//
// f32. y may be gate or up.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

enum class ActivationKind { situ, swiglu };

struct ActivationForm {
  ActivationKind kind = ActivationKind::situ;
  float beta = 0, linear_beta = 0;  // of situ
  float limit = 0;                  // of swiglu
};

struct ActivationArgs {
  const float* gate;  // [rows, dim]
  const float* up;    // [rows, dim]
  float* y;           // [rows, dim]  output
  int64_t rows;
  int dim;
  ActivationForm form;
};
DSA_DECLARE_KERNEL(activation, ActivationArgs);

}  // namespace dsa
