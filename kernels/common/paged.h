// kernels/common/paged.h: rows of a cache that lie in pages, found through the block table of their sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kPageSize = 64;  // positions

// How a cache keeps its values. Whoever writes rounds to nearest, ties to even; whoever reads takes what is there.
enum class CacheFormat { f32, bf16 };

DSA_HD inline size_t cache_value_bytes(CacheFormat format) {
  return format == CacheFormat::bf16 ? sizeof(bf16) : sizeof(float);
}

struct CacheRow {
  void* values;
  CacheFormat format;

  DSA_HD float operator[](int64_t d) const {
    return format == CacheFormat::bf16 ? to_f32(static_cast<const bf16*>(values)[d])
                                       : static_cast<const float*>(values)[d];
  }
  DSA_HD void set(int64_t d, float value) const {
    if (format == CacheFormat::bf16)
      static_cast<bf16*>(values)[d] = to_bf16(value);
    else
      static_cast<float*>(values)[d] = value;
  }
  // The same row from column d on.
  DSA_HD CacheRow from(int64_t d) const {
    return {static_cast<char*>(values) + size_t(d) * cache_value_bytes(format), format};
  }
};

struct PagedRows {
  void* pages;                  // row 0 of page 0
  size_t page_stride;           // bytes from page to page; a page may hold more than these rows
  const int32_t* block_tables;  // [sequences, max_pages]
  int max_pages;
  int dim;                    // values in a row
  int page_rows = kPageSize;  // fewer if several positions share a row
  CacheFormat format = CacheFormat::f32;

  DSA_HD CacheRow row(int sequence, int64_t p) const {
    const int32_t page = block_tables[size_t(sequence) * max_pages + size_t(p / page_rows)];
    return {static_cast<char*>(pages) + size_t(page) * page_stride +
                size_t(p % page_rows) * dim * cache_value_bytes(format),
            format};
  }
  // The same, for callers that know the format.
  template <class T>
  DSA_HD T* values(int sequence, int64_t p) const {
    return static_cast<T*>(row(sequence, p).values);
  }
};

}  // namespace dsa
