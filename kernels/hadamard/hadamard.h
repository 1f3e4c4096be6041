// kernels/hadamard/hadamard.h: spreads outliers over a row before it is rounded, in place.
//
//   x[r, i] = dim^-0.5 * sum over j of  (-1)^popcount(i & j) * x[r, j]
//
// Symmetric and orthogonal: applied to queries and keys alike it leaves their products as they are. f32, log2(dim)
// rounds of sums and differences.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct HadamardArgs {
  float* x;  // [rows, dim]  dense
  int64_t rows;
  int dim;  // a power of two
};
DSA_DECLARE_KERNEL(hadamard, HadamardArgs);

}  // namespace dsa
