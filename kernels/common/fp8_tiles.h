// kernels/common/fp8_tiles.h: the order in which FP8 matrices lie for products on GPUs.
//
// Stretches of 128 columns follow each other; in a stretch the rows follow each other, 128 bytes each, so that any run
// of rows of one stretch is one piece of memory. Of its columns, 16-byte unit u has 4 u .. 4 u + 3 of each 32: a thread of a
// matrix unit reads a quarter of every unit, which then is one MXFP4 block. The eight units of a row are in the order in
// which shared memory has no bank conflicts: unit u lies where u ^ (row % 8) says. The last stretch is filled up with zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kFp8Stretch = 128, kFp8Unit = 16;

DSA_HD inline int64_t fp8_stretches(int64_t columns) { return (columns + kFp8Stretch - 1) / kFp8Stretch; }
DSA_HD inline int64_t fp8_tile_bytes(int64_t rows, int64_t columns) {
  return rows * fp8_stretches(columns) * kFp8Stretch;
}
// Where the value at (row, column) of [rows, any] lies.
DSA_HD inline int64_t fp8_tile_offset(int64_t rows, int64_t row, int64_t column) {
  const int64_t unit = column / 4 % 8 ^ row % 8, block = column / kMxfp4Block % 4;
  return (column / kFp8Stretch * rows + row) * kFp8Stretch + unit * kFp8Unit + 4 * block + column % 4;
}

// Multiprocessors that expand weights while the others multiply those before by `rows` rows of an expert, so that both
// take as long; 0: nothing is expanded. One expands as many weights as it multiplies by kFp8RowsOfExpanding rows.
constexpr int kFp8RowsOfExpanding = 124;
inline int fp8_expanding(int multiprocessors, int rows) {
  if (rows == 0) return 0;
  const int share = (multiprocessors * kFp8RowsOfExpanding + rows) / (rows + kFp8RowsOfExpanding);
  return share < 1 ? 1 : share > multiprocessors / 2 ? multiprocessors / 2 : share;
}

}  // namespace dsa
