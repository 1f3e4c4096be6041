// kernels/gather_rows/gather_rows_ref.cc: one copy a row.
#include <cstring>

#include "kernels/gather_rows/gather_rows.h"

namespace dsa {

void ref::gather_rows(const GatherRowsArgs& a, Queue& queue) {
  queue.parallel_for(a.count, [&](int64_t i) {
    memcpy(a.y + i * a.dim, a.x + int64_t(a.rows[i]) * a.dim, size_t(a.dim) * sizeof(float));
  });
}

}  // namespace dsa
