// kernels/gather_rows/gather_rows.cu: one block a row.
#include "kernels/common/cuda.cuh"
#include "kernels/gather_rows/gather_rows.h"

namespace dsa {

void cuda::gather_rows(const GatherRowsArgs& a, Queue& queue) {
  each_block(queue, a.count, threads_for(a.dim), [a] __device__(int64_t i) {
    const float* x = a.x + int64_t(a.rows[i]) * a.dim;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) a.y[i * a.dim + d] = x[d];
  });
}

}  // namespace dsa
