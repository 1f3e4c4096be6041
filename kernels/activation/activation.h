// kernels/activation/activation.h: the gated activation between the two products of a feed-forward block.
//
//   situ:  y = [ beta tanh(gate / beta) sigmoid(gate) ] * [ linear_beta tanh(up / linear_beta) ]
//          The sigmoid takes the uncapped gate. linear_beta 0: `up` passes unchanged.
//
// f32. y may be gate or up.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

enum class ActivationKind { situ };

struct ActivationArgs {
  const float* gate;  // [rows, dim]
  const float* up;    // [rows, dim]
  float* y;           // [rows, dim]  output
  int64_t rows;
  int dim;
  ActivationKind kind;
  float beta, linear_beta;
};
DSA_DECLARE_KERNEL(activation, ActivationArgs);

}  // namespace dsa
