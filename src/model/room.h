// model/room.h: one piece of memory, handed out as tensors.
#pragma once

#include <algorithm>

#include "backend/storage.h"
#include "base/tensor.h"

namespace dsa {

// Without memory it only counts: what the same calls will need.
class Room {
 public:
  Room() = default;
  explicit Room(void* base) : base_(static_cast<char*>(base)) {}

  Tensor floats(std::initializer_list<int64_t> dims) { return take(DType::f32, dims); }
  Tensor integers(std::initializer_list<int64_t> dims) { return take(DType::i32, dims); }
  template <class T>
  T* array(size_t n) {
    return static_cast<T*>(bytes(n * sizeof(T)));
  }
  void* bytes(size_t n) {
    void* p = base_ ? base_ + used_ : nullptr;
    used_ += (n + kStorageAlignment - 1) / kStorageAlignment * kStorageAlignment;
    return p;
  }
  size_t used() const { return used_; }

 private:
  Tensor take(DType type, std::initializer_list<int64_t> dims) {
    Tensor t(nullptr, type, dims);
    t.data = bytes(size_t(t.count()) * dtype_bytes(type));
    return t;
  }

  char* base_ = nullptr;
  size_t used_ = 0;
};

}  // namespace dsa
