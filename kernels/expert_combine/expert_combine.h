// kernels/expert_combine/expert_combine.h: the weighted sum of what the experts of a token gave.
//
//   y[t, d] = sum over slot of  expert_weights[t, slot] * x[rows[t * top_k + slot], d]
//
// f32, slots in rising order.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct ExpertCombineArgs {
  const float* x;               // [tokens * top_k, dim]  rows sorted by expert
  const int32_t* rows;          // [tokens * top_k]  see expert_plan
  const float* expert_weights;  // [tokens, top_k]
  float* y;                     // [tokens, dim]  output
  int tokens, top_k, dim;
};
DSA_DECLARE_KERNEL(expert_combine, ExpertCombineArgs);

}  // namespace dsa
