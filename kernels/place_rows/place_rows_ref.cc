// kernels/place_rows/place_rows_ref.cc: one copy a run.
#include <cstring>

#include "kernels/place_rows/place_rows.h"

namespace dsa {

void ref::place_rows(const PlaceRowsArgs& a, Queue&) {
  for (int i = 0; i < a.num_runs; ++i) {
    const PlacedRun& run = a.runs[i];
    memcpy(a.y + int64_t(run.first) * a.dim, run.rows, size_t(run.count) * size_t(a.dim) * sizeof(float));
  }
}

}  // namespace dsa
