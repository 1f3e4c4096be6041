// kernels/gather_rows/gather_rows.h: brings rows together.
//
//   y[i, d] = x[rows[i], d]
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct GatherRowsArgs {
  const float* x;       // [any, dim]
  const int32_t* rows;  // [count]
  float* y;             // [count, dim]  output
  int64_t count;
  int dim;
};
DSA_DECLARE_KERNEL(gather_rows, GatherRowsArgs);

}  // namespace dsa
