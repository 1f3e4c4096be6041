// kernels/append_rows/append_rows_ref.cc: one copy a row.
#include <cstring>

#include "kernels/append_rows/append_rows.h"

namespace dsa {

void ref::append_rows(const AppendRowsArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    float* row = a.cache.row(a.sequence_of[t], a.positions[t]);
    memcpy(row, a.x + t * a.x_stride, size_t(a.cache.dim) * sizeof(float));
  });
}

}  // namespace dsa
