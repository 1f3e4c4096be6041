// kernels/top_k/top_k.h: the positions with the largest scores.
//
//   selected[t] = the min(top_k, visible[t]) positions p < visible[t] with the largest scores[t, p], ascending;
//                 the lower position wins a tie; a NaN score loses against every number. Unused slots are -1.
//
// guesses, which kernels may use and change, and whose values never change what is selected: from which score on to look in
// the next step of a sequence, what the step before has left there.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct TopKArgs {
  const float* scores;     // [tokens, >= visible]
  const int32_t* visible;  // [tokens]
  int32_t* selected;       // [tokens, top_k]  output
  int64_t scores_stride;   // floats from row to row
  int tokens, top_k;
  uint32_t* guesses = nullptr;  // [tokens], or null
};
DSA_DECLARE_KERNEL(top_k, TopKArgs);

}  // namespace dsa
