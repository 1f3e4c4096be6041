// kernels/common/paged.h: rows of a cache that lie in pages, found through the block table of their sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kPageSize = 64;  // positions

struct PagedRows {
  float* pages;                 // row 0 of page 0
  size_t page_stride;           // floats from page to page; a page may hold more than these rows
  const int32_t* block_tables;  // [sequences, max_pages]
  int max_pages;
  int dim;                    // floats in a row
  int page_rows = kPageSize;  // fewer if several positions share a row

  DSA_HD float* row(int sequence, int64_t p) const {
    const int32_t page = block_tables[size_t(sequence) * max_pages + size_t(p / page_rows)];
    return pages + size_t(page) * page_stride + size_t(p % page_rows) * dim;
  }
};

}  // namespace dsa
