// tests/support/pages.h: caches in pages, in shuffled order, NaN wherever no row was written.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/common/paged.h"
#include "tests/support/values.h"

namespace dsa::test {

// The cache of several sequences. Pages have a gap between them and lie in no order.
class Pages {
 public:
  Pages(Random& random, std::vector<int> lengths, int dim, float scale = 1, int gap = 5)
      : lengths_(std::move(lengths)), dim_(dim), stride_(size_t(kPageSize) * dim + gap) {
    int num_pages = 1;  // one that nobody owns
    for (int length : lengths_) {
      max_pages_ = std::max(max_pages_, pages_of(length));
      num_pages += pages_of(length);
    }
    std::vector<int32_t> ids(static_cast<size_t>(num_pages));
    std::iota(ids.begin(), ids.end(), 0);
    for (int i = num_pages - 1; i > 0; --i) std::swap(ids[i], ids[random.integer(0, i)]);
    values_ = poisoned(stride_ * num_pages);
    tables_.assign(lengths_.size() * max_pages_, -1);
    for (size_t s = 0, used = 0; s < lengths_.size(); ++s) {
      for (int i = 0; i < pages_of(lengths_[s]); ++i) tables_[s * max_pages_ + i] = ids[used++];
      for (int p = 0; p < lengths_[s]; ++p)
        for (int d = 0; d < dim_; ++d) row(int(s), p)[d] = scale * random.normal();
    }
  }

  PagedRows rows() { return {values_.data(), stride_ * sizeof(float), tables_.data(), max_pages_, dim_}; }
  float* row(int s, int64_t p) { return rows().values<float>(s, p); }
  const Values& values() const { return values_; }
  int length(int s) const { return lengths_[s]; }
  int num_pages() const { return int(values_.size() / stride_); }
  int sequences() const { return int(lengths_.size()); }
  // Writes `value` wherever no row lies.
  void fill_unused(float value) {
    Values filled(values_.size(), value);
    for (int s = 0; s < sequences(); ++s)
      for (int p = 0; p < length(s); ++p)
        memcpy(filled.data() + (row(s, p) - values_.data()), row(s, p), dim_ * sizeof(float));
    values_ = filled;
  }

  static int pages_of(int length) { return (length + kPageSize - 1) / kPageSize; }

 private:
  std::vector<int> lengths_;
  int dim_;
  size_t stride_;
  int max_pages_ = 1;
  Values values_;
  std::vector<int32_t> tables_;
};

// The same rows in a cache that keeps bf16; those of `pages` are rounded alike. Pages lie in the same order, at
// multiples of 16 bytes.
class NarrowPages {
 public:
  explicit NarrowPages(Pages& pages) : rows_(pages.rows()) {
    rows_.page_stride = (size_t(kPageSize) * rows_.dim * sizeof(bf16) + 31) / 16 * 16;
    rows_.format = CacheFormat::bf16;
    values_.assign(rows_.page_stride / sizeof(bf16) * size_t(pages.num_pages()), bf16{0xffff});
    rows_.pages = values_.data();
    for (int s = 0; s < pages.sequences(); ++s)
      for (int p = 0; p < pages.length(s); ++p)
        for (int d = 0; d < rows_.dim; ++d) {
          const bf16 value = to_bf16(pages.row(s, p)[d]);
          rows_.values<bf16>(s, p)[d] = value;
          pages.row(s, p)[d] = to_f32(value);
        }
  }
  NarrowPages(const NarrowPages&) = delete;
  NarrowPages& operator=(const NarrowPages&) = delete;

  const PagedRows& rows() const { return rows_; }

 private:
  PagedRows rows_;
  std::vector<bf16> values_;
};
// The same rows in a cache that keeps fp8, coded by arithmetic of its own; those of `pages` are rounded alike. What no row
// fills is NaN.
class Fp8Pages {
 public:
  Fp8Pages(Pages& pages, int coded) : rows_(pages.rows()) {
    rows_.format = CacheFormat::fp8, rows_.coded = coded;
    const int groups = (coded + 127) / 128, scales = (coded + 3) / 4 * 4, others = scales + 4 * groups,
              row = (others + 2 * (rows_.dim - coded) + 15) / 16 * 16;
    rows_.page_stride = size_t(kPageSize) * size_t(row) + 16;
    bytes_.assign(rows_.page_stride * size_t(pages.num_pages()), 0xff);
    rows_.pages = bytes_.data();
    for (int s = 0; s < pages.sequences(); ++s)
      for (int p = 0; p < pages.length(s); ++p) {
        float* values = pages.row(s, p);
        uint8_t* to = bytes_.data() +
                      rows_.block_tables[s * rows_.max_pages + p / kPageSize] * rows_.page_stride +
                      size_t(p % kPageSize) * size_t(row);
        for (int g = 0; g < groups; ++g) {
          const int begin = 128 * g, end = std::min(coded, begin + 128);
          float largest = 1e-4f;
          for (int d = begin; d < end; ++d) largest = std::max(largest, std::fabs(values[d]));
          float scale = 1;
          while (448 * scale < largest) scale *= 2;
          while (448 * scale / 2 >= largest) scale /= 2;
          memcpy(to + scales + 4 * g, &scale, sizeof scale);
          for (int d = begin; d < end; ++d) {
            to[d] = f32_to_e4m3(values[d] / scale);
            values[d] = e4m3_to_f32(to[d]) * scale;
          }
        }
        for (int d = coded; d < rows_.dim; ++d) {
          const bf16 value = to_bf16(values[d]);
          memcpy(to + others + 2 * (d - coded), &value, sizeof value);
          values[d] = to_f32(value);
        }
      }
  }
  Fp8Pages(const Fp8Pages&) = delete;
  Fp8Pages& operator=(const Fp8Pages&) = delete;

  const PagedRows& rows() const { return rows_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  PagedRows rows_;
  std::vector<uint8_t> bytes_;
};

// Rounds values to bf16 in place.
inline void narrow(Values& values) {
  for (float& value : values) value = to_f32(to_bf16(value));
}

// The same rows as one sequence of `pages`, in an address range so wide that products of page and stride pass
// 2^31 and 2^32, in bytes and in floats; or, packed, with page numbers beyond 65535.
class FarPages {
 public:
  enum class Layout { wide, packed };

  FarPages(Pages& pages, int sequence, Layout layout) : dim_(pages.rows().dim) {
    const size_t page = size_t(kPageSize) * dim_;
    stride_ = layout == Layout::wide ? (size_t{920} << 20) / sizeof(float) : page;
    const std::vector<int32_t> ids = layout == Layout::wide
                                         ? std::vector<int32_t>{3, 5, 10, 19, 1, 4}
                                         : std::vector<int32_t>{65535, 65536, 70001, 2, 65537};
    num_pages_ = Pages::pages_of(pages.length(sequence));
    for (int i = 0; i < num_pages_; ++i) table_.push_back(ids.at(i));
    bytes_ = (stride_ * (*std::max_element(ids.begin(), ids.end()) + 1)) * sizeof(float);
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    values_ = memory == MAP_FAILED ? nullptr : static_cast<float*>(memory);
    for (int p = 0; values_ && p < pages.length(sequence); ++p)
      memcpy(address(p), pages.row(sequence, p), dim_ * sizeof(float));
  }
  ~FarPages() {
    if (values_) munmap(values_, bytes_);
  }
  FarPages(const FarPages&) = delete;
  FarPages& operator=(const FarPages&) = delete;

  bool mapped() const { return values_ != nullptr; }
  PagedRows rows() { return {values_, stride_ * sizeof(float), table_.data(), num_pages_, dim_}; }
  // Where position p lies, in 64-bit arithmetic of its own.
  float* address(int64_t p) {
    return values_ + uint64_t(table_[size_t(p) / kPageSize]) * uint64_t(stride_) +
           uint64_t(p % kPageSize) * uint64_t(dim_);
  }

 private:
  int dim_;
  size_t stride_ = 0, bytes_ = 0;
  int num_pages_ = 0;
  float* values_ = nullptr;
  std::vector<int32_t> table_;
};

}  // namespace dsa::test
