// kernels/place_rows/place_rows.h: puts runs of rows over those that are there, the later run over the earlier.
//
//   y[first + i, d] = rows[i, d]   for each run
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct PlacedRun {
  const float* rows;  // [count, dim]
  int first, count;
};

struct PlaceRowsArgs {
  const PlacedRun* runs;  // [num_runs]
  float* y;               // [any, dim]  output
  int num_runs, dim;
};
DSA_DECLARE_KERNEL(place_rows, PlaceRowsArgs);

}  // namespace dsa
