// kernels/expert_up/expert_up.h: the first products of the experts of few tokens, without a plan: every token goes to its
// experts by itself.
//
//   gate[t, slot, o] = sum over i of  gates[expert_ids[t, slot]][o, i] * x[t, i]
//   up[t, slot, o]   = sum over i of  ups[expert_ids[t, slot]][o, i] * x[t, i]
//
// MXFP4 weights, 16-byte aligned; routes, precision and order of sums as in mxfp4_linear. A matrix is read once for each
// token that chose it.
#pragma once

#include "kernels/common/experts.h"
#include "kernels/common/kernel.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr int kExpertTopKMax = 32;  // experts of a token, here and in expert_down

struct ExpertUpArgs {
  const float* x;             // [tokens, in_dim]
  const int32_t* expert_ids;  // [tokens, top_k]
  const ExpertMatrix* gates;  // [experts]  each [out_dim, in_dim]
  const ExpertMatrix* ups;    // [experts]
  float* gate;                // [tokens, top_k, out_dim]  output
  float* up;                  // [tokens, top_k, out_dim]  output
  int64_t x_stride;           // floats from row to row
  int tokens, top_k, in_dim, out_dim;
  Route route;
};
DSA_DECLARE_KERNEL(expert_up, ExpertUpArgs);

}  // namespace dsa
