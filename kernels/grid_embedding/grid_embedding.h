// kernels/grid_embedding/grid_embedding.h: adds to the cells of a grid their place in a learned table, stretched to
// the grid.
//
//   x[first + r * columns + c, d] += sum over i, j in {0, 1} of
//                                    share_i(r) * share_j(c) * table[ row_i(r), column_j(c), d ]
//
// Along each side, with n cells over a table of size m:  s = max( 0, (i + 0.5) * m / n - 0.5 ),  low = floor(s), the
// neighbours are low and low + 1, both at most m - 1, and their shares 1 - (s - low) and s - low: bilinear, half-pixel
// centres, no antialias. A grid of the table's own size gets the table itself. f32 or wider.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct Grid {
  int64_t first;  // its first cell; cells are in row-major order
  int rows, columns;
};

struct GridEmbeddingArgs {
  const void* table;  // [table_rows, table_columns, dim]
  DType table_type;   // bf16 or f32
  const Grid* grids;  // [num_grids]
  float* x;           // [cells, dim]  input and output
  int num_grids, table_rows, table_columns, dim;
};
DSA_DECLARE_KERNEL(grid_embedding, GridEmbeddingArgs);

}  // namespace dsa
