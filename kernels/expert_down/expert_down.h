// kernels/expert_down/expert_down.h: from the first products of the experts of few tokens to the end of the block.
//
//   x[t, slot, i] = activation(gate, up, form)
//   y[t, o]       = addend[t, o] + ( sum over slot of  expert_weights[t, slot] * expert[t, slot, o]  +  shared[t, o] )
//   expert[t, slot, o] = sum over i of  downs[expert_ids[t, slot]][o, i] * x[t, slot, i]
//
// MXFP4 weights, 16-byte aligned; routes, precision and order of sums as in mxfp4_linear, slots in rising order. addend and
// shared may be null; y may be either of them. top_k * in_dim is at most kExpertDownInputsMax. A matrix is read once for each
// token that chose it. On GPUs the kernel just before must not choose them: its end is not waited for.
#pragma once

#include "kernels/activation/activation.h"
#include "kernels/common/experts.h"
#include "kernels/common/kernel.h"
#include "kernels/common/route.h"
#include "kernels/expert_up/expert_up.h"

namespace dsa {

constexpr int kExpertDownInputsMax = 24 * 1024;

struct ExpertDownArgs {
  const float* gate;  // [tokens, top_k, in_dim]
  const float* up;    // [tokens, top_k, in_dim]
  ActivationForm form;
  const int32_t* expert_ids;    // [tokens, top_k]
  const float* expert_weights;  // [tokens, top_k]
  const ExpertMatrix* downs;    // [experts]  each [out_dim, in_dim]
  const float* shared;          // [tokens, out_dim]
  const float* addend;          // [tokens, out_dim]
  float* y;                     // [tokens, out_dim]  output
  int tokens, top_k, in_dim, out_dim;
  Route route;
};
DSA_DECLARE_KERNEL(expert_down, ExpertDownArgs);

}  // namespace dsa
