// kernels/place_rows/place_rows.cu: blocks go round the rows of each run; a row that a later run places is left to it.
#include "kernels/common/cuda.cuh"
#include "kernels/place_rows/place_rows.h"

namespace dsa {
namespace {

constexpr int kBlocks = 256;  // of one run

__global__ void __launch_bounds__(1024) place_rows_kernel(const __grid_constant__ PlaceRowsArgs a) {
  begin_kernel();
  const PlacedRun run = a.runs[blockIdx.y];
  for (int i = blockIdx.x; i < run.count; i += gridDim.x) {
    const int row = run.first + i;
    bool placed_later = false;
    for (int later = blockIdx.y + 1; later < a.num_runs; ++later)
      placed_later |= row >= a.runs[later].first && row < a.runs[later].first + a.runs[later].count;
    if (placed_later) continue;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x)
      a.y[int64_t(row) * a.dim + d] = run.rows[int64_t(i) * a.dim + d];
  }
}

}  // namespace

void cuda::place_rows(const PlaceRowsArgs& a, Queue& queue) {
  launch(queue, dim3(kBlocks, unsigned(a.num_runs)), unsigned(threads_for(a.dim)), 0, place_rows_kernel, a);
}

}  // namespace dsa
