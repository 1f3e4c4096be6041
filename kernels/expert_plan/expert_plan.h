// kernels/expert_plan/expert_plan.h: sorts the (token, slot) pairs of a step by expert.
//
// A pair is t * top_k + slot. Rows [offsets[e], offsets[e + 1]) of the sorted order belong to expert e, in rising
// order of the pair.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct ExpertPlanArgs {
  const int32_t* expert_ids;  // [tokens, top_k]
  int32_t* offsets;           // [experts + 1]      output
  int32_t* pairs;             // [tokens * top_k]   output: the pair of each sorted row
  int32_t* rows;              // [tokens * top_k]   output: the sorted row of each pair
  int tokens, experts, top_k;
};
DSA_DECLARE_KERNEL(expert_plan, ExpertPlanArgs);

}  // namespace dsa
