// kernels/grid_embedding/grid_embedding_ref.cc: one row of cells at a time, f64 sums.
#include <algorithm>
#include <cmath>

#include "kernels/grid_embedding/grid_embedding.h"

namespace dsa {
namespace {

// Two neighbours along one side of the table, and the share of the second.
struct Between {
  int low, high;
  double share;
};

Between between(int i, int cells, int size) {
  const double s = std::max(0.0, (i + 0.5) * size / cells - 0.5);
  const int low = std::min(int(s), size - 1);
  return {low, std::min(low + 1, size - 1), s - low};
}

template <class T>
void add_row(const GridEmbeddingArgs& a, const Grid& grid, int r) {
  const T* table = static_cast<const T*>(a.table);
  const auto entry = [&](int row, int column) {
    return table + (int64_t(row) * a.table_columns + column) * a.dim;
  };
  const Between row = between(r, grid.rows, a.table_rows);
  for (int c = 0; c < grid.columns; ++c) {
    const Between column = between(c, grid.columns, a.table_columns);
    const T *top_left = entry(row.low, column.low), *top_right = entry(row.low, column.high);
    const T *bottom_left = entry(row.high, column.low), *bottom_right = entry(row.high, column.high);
    float* x = a.x + (grid.first + int64_t(r) * grid.columns + c) * a.dim;
    for (int d = 0; d < a.dim; ++d) {
      const double top = (1 - column.share) * to_f32(top_left[d]) + column.share * to_f32(top_right[d]);
      const double bottom =
          (1 - column.share) * to_f32(bottom_left[d]) + column.share * to_f32(bottom_right[d]);
      x[d] = float(x[d] + (1 - row.share) * top + row.share * bottom);
    }
  }
}

}  // namespace

void ref::grid_embedding(const GridEmbeddingArgs& a, Queue& queue) {
  DSA_ASSERT(a.table_type == DType::bf16 || a.table_type == DType::f32);
  for (int g = 0; g < a.num_grids; ++g)
    queue.parallel_for(a.grids[g].rows, [&](int64_t r) {
      if (a.table_type == DType::bf16)
        add_row<bf16>(a, a.grids[g], int(r));
      else
        add_row<float>(a, a.grids[g], int(r));
    });
}

}  // namespace dsa
