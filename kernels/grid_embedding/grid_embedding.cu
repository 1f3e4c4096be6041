// kernels/grid_embedding/grid_embedding.cu: one block a cell; the cells of a grid go round its blocks.
#include "kernels/common/cuda.cuh"
#include "kernels/grid_embedding/grid_embedding.h"

namespace dsa {
namespace {

// Two neighbours along one side of the table, and the share of the second.
struct Between {
  int low, high;
  float share;
};

__device__ Between between(int i, int cells, int size) {
  const float s = fmaxf(0.f, (i + 0.5f) * size / cells - 0.5f);
  const int low = min(int(s), size - 1);
  return {low, min(low + 1, size - 1), s - low};
}

constexpr int kBlocks = 512;  // of one grid

template <class T>
__global__ void __launch_bounds__(1024) grid_embedding_kernel(const __grid_constant__ GridEmbeddingArgs a) {
  begin_kernel();
  const Grid grid = a.grids[blockIdx.y];
  const T* table = static_cast<const T*>(a.table);
  const auto entry = [&](int row, int column) {
    return table + (int64_t(row) * a.table_columns + column) * a.dim;
  };
  for (int64_t cell = blockIdx.x; cell < int64_t(grid.rows) * grid.columns; cell += gridDim.x) {
    const Between row = between(int(cell / grid.columns), grid.rows, a.table_rows);
    const Between column = between(int(cell % grid.columns), grid.columns, a.table_columns);
    const T *top_left = entry(row.low, column.low), *top_right = entry(row.low, column.high);
    const T *bottom_left = entry(row.high, column.low), *bottom_right = entry(row.high, column.high);
    float* x = a.x + (grid.first + cell) * a.dim;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      const float top = (1 - column.share) * to_f32(top_left[d]) + column.share * to_f32(top_right[d]);
      const float bottom =
          (1 - column.share) * to_f32(bottom_left[d]) + column.share * to_f32(bottom_right[d]);
      x[d] += (1 - row.share) * top + row.share * bottom;
    }
  }
}

}  // namespace

void cuda::grid_embedding(const GridEmbeddingArgs& a, Queue& queue) {
  DSA_ASSERT(a.table_type == DType::bf16 || a.table_type == DType::f32);
  const dim3 grid(kBlocks, unsigned(a.num_grids));
  launch(queue, grid, unsigned(threads_for(a.dim)), 0,
         a.table_type == DType::bf16 ? grid_embedding_kernel<bf16> : grid_embedding_kernel<float>, a);
}

}  // namespace dsa
