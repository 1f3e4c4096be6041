// kernels/append_rows/append_rows.h: writes the rows of a step into the pages of their sequences.
//
//   cache.row(sequence_of[t], positions[t])[d] = x[t, d]                  rounded as the cache keeps it
//
// In fp8 that is to e4m3( x / scale ) * scale, with the scales of Fp8Row, and to bf16 from column `coded` on. NaN and
// infinity leave no finite value in the group of their scale.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/paged.h"

namespace dsa {

struct AppendRowsArgs {
  const float* x;              // [tokens, cache.dim]
  const int32_t* sequence_of;  // [tokens]
  const int32_t* positions;    // [tokens]
  PagedRows cache;             // output
  int64_t x_stride;            // floats from row to row
  int tokens;
};
DSA_DECLARE_KERNEL(append_rows, AppendRowsArgs);

}  // namespace dsa
