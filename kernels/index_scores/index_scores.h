// kernels/index_scores/index_scores.h: how much each query token wants each cached position.
//
//   scores[t, p] = sum over h of  head_weights[t, h] * max(0, q[t, h] . k[p])       p < visible[t]
//   scores[t, p] = -inf                                                            visible[t] <= p < context
//
// k[p] is the index key of position p in the token's own sequence. f32; the order of the sums depends on heads and
// dim alone. With Route::fast, an implementation may round q to bf16 where the cache keeps bf16.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/paged.h"
#include "kernels/common/route.h"

namespace dsa {

struct IndexScoresArgs {
  const float* q;              // [tokens, heads, dim]
  const float* head_weights;   // [tokens, heads]  may be negative
  const int32_t* sequence_of;  // [tokens]
  const int32_t* visible;      // [tokens]           positions each token may see
  PagedRows k;                 // index keys
  float* scores;               // [tokens, context]  output
  int64_t scores_stride;       // floats from row to row
  int tokens, heads, dim, context;
  Route route = Route::exact;

  DSA_HD const float* q_row(int64_t t, int h) const { return q + (size_t(t) * heads + h) * dim; }
};
DSA_DECLARE_KERNEL(index_scores, IndexScoresArgs);

}  // namespace dsa
