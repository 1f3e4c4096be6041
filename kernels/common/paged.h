// kernels/common/paged.h: rows of a cache that lie in pages, found through the block table of their sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kPageSize = 64;  // positions

// How a cache keeps its values. Whoever writes rounds to nearest, ties to even; whoever reads takes what is there.
// fp8 is for rows of latents alone: see Fp8Row.
enum class CacheFormat { f32, bf16, fp8 };

// A row in fp8: E4M3 codes of its first `coded` values, filled up to a multiple of 4; a scale for each kFp8Block of them,
// f32, NaN if a value is; the other values, which carry positions, as bf16. Its size is a multiple of 16.
struct Fp8Row {
  uint8_t* codes;
  int coded;

  DSA_HD static int scales_at(int coded) { return (coded + 3) / 4 * 4; }
  DSA_HD static int groups(int coded) { return (coded + kFp8Block - 1) / kFp8Block; }
  DSA_HD static int others_at(int coded) { return scales_at(coded) + groups(coded) * int(sizeof(float)); }
  DSA_HD static size_t bytes(int dim, int coded) {
    return size_t(others_at(coded) + (dim - coded) * int(sizeof(bf16)) + 15) / 16 * 16;
  }

  // The smallest power of two that is at least max(largest, 1e-4) / 448: values that it has rounded stay as they are.
  DSA_HD static float scale_of(float largest) {
    const uint32_t bits = f32_to_bits((largest > 1e-4f ? largest : 1e-4f) / 448);
    return bits_to_f32(((bits >> 23) + ((bits & 0x7fffff) != 0)) << 23);
  }

  DSA_HD float* scales() const { return reinterpret_cast<float*>(codes + scales_at(coded)); }
  DSA_HD bf16* others() const { return reinterpret_cast<bf16*>(codes + others_at(coded)); }
  DSA_HD float operator[](int64_t d) const {
    return d < coded ? e4m3_to_f32(codes[d]) * scales()[d / kFp8Block] : to_f32(others()[d - coded]);
  }
};

// Of a row of `dim` values, of which fp8 codes `coded`.
DSA_HD inline size_t cache_row_bytes(CacheFormat format, int dim, int coded) {
  return format == CacheFormat::f32    ? size_t(dim) * sizeof(float)
         : format == CacheFormat::bf16 ? size_t(dim) * sizeof(bf16)
                                       : Fp8Row::bytes(dim, coded);
}

struct CacheRow {
  void* values;
  CacheFormat format;
  int coded = 0;  // values that fp8 keeps as codes

  DSA_HD Fp8Row fp8() const { return {static_cast<uint8_t*>(values), coded}; }
  DSA_HD float operator[](int64_t d) const {
    return format == CacheFormat::f32    ? static_cast<const float*>(values)[d]
           : format == CacheFormat::bf16 ? to_f32(static_cast<const bf16*>(values)[d])
                                         : fp8()[d];
  }
  // Not in fp8, where a value needs those around it.
  DSA_HD void set(int64_t d, float value) const {
    if (format == CacheFormat::bf16)
      static_cast<bf16*>(values)[d] = to_bf16(value);
    else
      static_cast<float*>(values)[d] = value;
  }
  // The same row from column d on. Not in fp8.
  DSA_HD CacheRow from(int64_t d) const {
    return {static_cast<char*>(values) + cache_row_bytes(format, int(d), 0), format};
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
  int coded = 0;  // of fp8

  DSA_HD size_t row_bytes() const { return cache_row_bytes(format, dim, coded); }
  DSA_HD CacheRow row(int sequence, int64_t p) const {
    const int32_t page = block_tables[size_t(sequence) * max_pages + size_t(p / page_rows)];
    return {static_cast<char*>(pages) + size_t(page) * page_stride + size_t(p % page_rows) * row_bytes(),
            format, coded};
  }
  // The same, for callers that know the format.
  template <class T>
  DSA_HD T* values(int sequence, int64_t p) const {
    return static_cast<T*>(row(sequence, p).values);
  }
};

}  // namespace dsa
