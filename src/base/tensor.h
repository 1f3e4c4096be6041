// base/tensor.h: a typed view of memory that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/status.h"

namespace dsa {

enum class DType : uint8_t { f32, bf16, f16, u8, i8, i32, i64, f8_e4m3, f8_e8m0, boolean, f64 };

size_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);

struct Tensor {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t dim[kMaxRank] = {};
  int64_t stride[kMaxRank] = {};        // elements; the last one is 1
  const float* block_scales = nullptr;  // of a whole f8_e4m3 matrix: [ceil(rows / 128), ceil(columns / 128)]

  Tensor() = default;
  // A dense row-major tensor.
  Tensor(void* memory, DType type, std::initializer_list<int64_t> dims);

  bool is_null() const { return data == nullptr; }
  int64_t count() const;
  bool is_dense() const;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const { return DSA_ASSERT(dtype == DType::f32), static_cast<float*>(data); }
  int32_t* i32() const { return DSA_ASSERT(dtype == DType::i32), static_cast<int32_t*>(data); }

  // The first `n` entries of dimension 0; entries [begin, begin + n) of it; the same of the last dimension.
  Tensor first(int64_t n) const { return slice(0, n); }
  Tensor slice(int64_t begin, int64_t n) const;
  Tensor columns(int64_t begin, int64_t n) const;
  // The same dense memory in another shape.
  Tensor reshape(std::initializer_list<int64_t> dims) const;
};

}  // namespace dsa
