// kernels/expert_groups/expert_groups.h: what an expert product works on: a group for each matrix whose expert has rows.
//
//   for each expert e with offsets[e] < offsets[e + 1], for each product i with matrices[e] of `type`:
//     the next group = matrices[e], rows [offsets[e], offsets[e + 1]) of x, row offsets[e] of products[i].y
//   every group behind the last one has no rows.
//
// The counts stay where kernels read them: nobody waits for them.
#pragma once

#include "kernels/common/experts.h"
#include "kernels/common/kernel.h"
#include "kernels/expert_linear/expert_linear.h"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {

struct ExpertGroupsArgs {
  static constexpr int kMaxProducts = 2;
  struct Product {
    const ExpertMatrix* matrices;  // [experts]
    float* y;                      // [sorted rows, out_dim], rows y_stride apart
  };

  const int32_t* offsets;  // [experts + 1]
  Product products[kMaxProducts];
  Mxfp4LinearGroup* mxfp4;    // [num_groups]  output if `type` is u8, else null
  ExpertLinearGroup* linear;  // [num_groups]  output of the other types, else null
  DType type;
  int64_t y_stride;
  int num_products, experts;
  int num_groups;  // at least as many as there are
};
DSA_DECLARE_KERNEL(expert_groups, ExpertGroupsArgs);

}  // namespace dsa
