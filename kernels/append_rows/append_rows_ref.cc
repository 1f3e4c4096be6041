// kernels/append_rows/append_rows_ref.cc: one row after the other.
#include "kernels/append_rows/append_rows.h"

namespace dsa {

void ref::append_rows(const AppendRowsArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const CacheRow row = a.cache.row(a.sequence_of[t], a.positions[t]);
    const float* x = a.x + t * a.x_stride;
    for (int d = 0; d < a.cache.dim; ++d) row.set(d, x[d]);
  });
}

}  // namespace dsa
