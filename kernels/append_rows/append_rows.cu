// kernels/append_rows/append_rows.cu: one block a row.
#include "kernels/append_rows/append_rows.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

void cuda::append_rows(const AppendRowsArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.cache.dim), [a] __device__(int64_t t) {
    const float* x = a.x + t * a.x_stride;
    const CacheRow row = a.cache.row(a.sequence_of[t], a.positions[t]);
    for (int d = threadIdx.x; d < a.cache.dim; d += blockDim.x) row.set(d, x[d]);
  });
}

}  // namespace dsa
