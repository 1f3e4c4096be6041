// kernels/sigmoid_gate/sigmoid_gate.h: an output gate.
//
//   y[r, d] = x[r, d] * sigmoid(gate[r, d])
//
// f32. y may be x.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct SigmoidGateArgs {
  const float* x;     // [rows, dim]
  const float* gate;  // [rows, dim]
  float* y;           // [rows, dim]  output
  int64_t rows;
  int dim;
};
DSA_DECLARE_KERNEL(sigmoid_gate, SigmoidGateArgs);

}  // namespace dsa
