// kernels/expert_gather/expert_gather.h: brings the rows of each expert together.
//
//   y[row, d] = x[pairs[row] / top_k, d]
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct ExpertGatherArgs {
  const float* x;        // [tokens, dim]
  const int32_t* pairs;  // [tokens * top_k]  see expert_plan
  float* y;              // [tokens * top_k, dim]  output
  int tokens, top_k, dim;
};
DSA_DECLARE_KERNEL(expert_gather, ExpertGatherArgs);

}  // namespace dsa
