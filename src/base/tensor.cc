#include "base/tensor.h"

namespace dsa {

size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8:
    case DType::i8:
    case DType::f8_e4m3:
    case DType::f8_e8m0:
    case DType::boolean: return 1;
  }
  return 0;
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64: return "F64";
    case DType::i64: return "I64";
    case DType::f32: return "F32";
    case DType::i32: return "I32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::u8: return "U8";
    case DType::i8: return "I8";
    case DType::f8_e4m3: return "F8_E4M3";
    case DType::f8_e8m0: return "F8_E8M0";
    case DType::boolean: return "BOOL";
  }
  return "?";
}

namespace {

void set_dense(Tensor& t, std::initializer_list<int64_t> dims) {
  DSA_ASSERT(dims.size() >= 1 && dims.size() <= size_t(Tensor::kMaxRank));
  t.rank = 0;
  for (int64_t d : dims) t.dim[t.rank++] = d;
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.stride[i] = stride;
    stride *= t.dim[i];
  }
}

}  // namespace

Tensor::Tensor(void* memory, DType type, std::initializer_list<int64_t> dims) : data(memory), dtype(type) {
  set_dense(*this, dims);
}

int64_t Tensor::count() const {
  int64_t n = rank > 0 ? 1 : 0;
  for (int i = 0; i < rank; ++i) n *= dim[i];
  return n;
}

bool Tensor::is_dense() const {
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (dim[i] != 1 && stride[i] != expected) return false;
    expected *= dim[i];
  }
  return true;
}

Tensor Tensor::slice(int64_t begin, int64_t n) const {
  DSA_ASSERT(block_scales == nullptr && begin >= 0 && n >= 0 && begin + n <= dim[0]);
  Tensor t = *this;
  t.data = static_cast<char*>(data) + size_t(begin * stride[0]) * dtype_bytes(dtype);
  t.dim[0] = n;
  return t;
}

Tensor Tensor::columns(int64_t begin, int64_t n) const {
  DSA_ASSERT(block_scales == nullptr && begin >= 0 && n >= 0 && begin + n <= dim[rank - 1]);
  Tensor t = *this;
  t.data = static_cast<char*>(data) + size_t(begin) * dtype_bytes(dtype);
  t.dim[rank - 1] = n;
  return t;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> dims) const {
  DSA_ASSERT(block_scales == nullptr && is_dense());
  Tensor t = *this;
  set_dense(t, dims);
  DSA_ASSERT(t.count() == count());
  return t;
}

}  // namespace dsa
