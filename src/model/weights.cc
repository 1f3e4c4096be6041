#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "kernels/common/numbers.h"

namespace dsa {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// Leading and inner dimensions of 1 say nothing: [96, 1, 4] is [96, 4].
std::vector<int64_t> without_ones(const std::vector<int64_t>& shape) {
  std::vector<int64_t> kept;
  for (int64_t d : shape)
    if (d != 1) kept.push_back(d);
  return kept;
}

bool shapes_agree(const std::vector<int64_t>& found, const std::vector<int64_t>& expected, bool at_least) {
  std::vector<int64_t> a = without_ones(found), b = without_ones(expected);
  if (at_least && !a.empty() && !b.empty() && a[0] > b[0]) a[0] = b[0];
  return a == b;
}

Tensor view(const void* data, DType dtype, const std::vector<int64_t>& shape) {
  void* p = const_cast<void*>(data);  // weights are only read
  if (shape.size() == 1) return Tensor(p, dtype, {shape[0]});
  return Tensor(p, dtype, {shape[0], count_of(shape) / shape[0]});
}

}  // namespace

std::string WeightLoader::file_of(const StoredTensor& tensor) const {
  const std::string& path = checkpoint_.files()[size_t(tensor.file)]->path();
  return path.substr(path.find_last_of('/') + 1);
}

Result<const StoredTensor*> WeightLoader::find(const std::string& name, const std::vector<int64_t>& shape,
                                               bool at_least) {
  const StoredTensor* tensor = checkpoint_.find(prefix_ + name);
  if (tensor == nullptr)
    return error(Code::model, "tensor '", prefix_, name, "' is missing, expected ", shape_text(shape));
  if (!shapes_agree(tensor->shape, shape, at_least))
    return error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", shape_text(tensor->shape),
                 ", expected ", shape_text(shape));
  return tensor;
}

const void* WeightLoader::aligned(const StoredTensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data) % dtype_bytes(tensor.dtype) == 0) return tensor.data;
  void* copy = own_bytes(tensor.bytes);
  if (reads_all()) memcpy(copy, tensor.data, tensor.bytes);
  return copy;
}

Status WeightLoader::matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out) {
  DSA_ASSIGN(const StoredTensor* tensor, find(name, shape, false));
  if (tensor->dtype != DType::bf16 && tensor->dtype != DType::f32 && tensor->dtype != DType::f8_e4m3)
    return error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", dtype_name(tensor->dtype),
                 ", expected BF16, F32 or F8_E4M3");
  out = view(aligned(*tensor), tensor->dtype, shape);
  if (tensor->dtype == DType::f8_e4m3) {
    DSA_ASSIGN(out.block_scales, block_scales(name + "_scale_inv", shape));
  } else if (has(name + "_scale_inv")) {
    return error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", dtype_name(tensor->dtype),
                 " but has scales, expected F8_E4M3");
  }
  return Status::ok();
}

Result<const float*> WeightLoader::block_scales(const std::string& name, const std::vector<int64_t>& shape) {
  const auto blocks = [](int64_t n) { return (n + kFp8Block - 1) / kFp8Block; };
  const std::vector<int64_t> scale_shape = {blocks(shape[0]), blocks(shape[1])};
  Tensor scales;
  DSA_TRY(vector(name, scale_shape, scales));
  for (int64_t i = 0; reads_all() && i < scales.count(); ++i)
    if (!std::isfinite(scales.f32()[i]))
      return error(Code::model, "'", prefix_, name, "' holds ", scales.f32()[i], " at ", i,
                   ", expected finite scales");
  return static_cast<const float*>(scales.f32());
}

Status WeightLoader::plain_matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out) {
  DSA_TRY(matrix(name, shape, out));
  if (out.dtype != DType::f8_e4m3) return Status::ok();
  const auto* codes = out.as<const uint8_t>();
  const int64_t rows = shape[0], columns = shape[1];
  float* values = own(size_t(rows) * size_t(columns));
  for (int64_t r = 0; reads_all() && r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      values[r * columns + c] = fp8_value(codes, out.block_scales, columns, r, c);
  out = view(values, DType::f32, shape);
  return Status::ok();
}

Status WeightLoader::vector(const std::string& name, std::vector<int64_t> shape, Tensor& out, bool at_least) {
  DSA_ASSIGN(const StoredTensor* tensor, find(name, shape, at_least));
  if (tensor->dtype != DType::f32 && tensor->dtype != DType::bf16)
    return error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", dtype_name(tensor->dtype),
                 ", expected BF16 or F32");
  const size_t n = size_t(count_of(shape));
  float* values = own(n);
  for (size_t i = 0; reads_all() && i < n; ++i) {
    if (tensor->dtype == DType::f32) {
      memcpy(&values[i], tensor->data + i * sizeof(float), sizeof(float));
    } else {
      bf16 value;
      memcpy(&value, tensor->data + i * sizeof value, sizeof value);
      values[i] = to_f32(value);
    }
  }
  out = view(values, DType::f32, shape);
  return Status::ok();
}

Status WeightLoader::product(const std::string& a, std::vector<int64_t> shape_a, const std::string& b,
                             std::vector<int64_t> shape_b, Tensor& out) {
  Tensor x, y;
  DSA_TRY(vector(a, shape_a, x));
  DSA_TRY(vector(b, shape_b, y));
  DSA_ASSERT(x.count() == y.count());
  const int64_t n = x.count();
  float* values = own(size_t(n));
  for (int64_t i = 0; i < n; ++i) values[i] = x.f32()[i] * y.f32()[i];
  out = Tensor(values, DType::f32, {n});
  return Status::ok();
}

Status WeightLoader::expert_matrix(const std::string& name, int64_t out_dim, int64_t in_dim,
                                   ExpertMatrix& out) {
  if (!has(name + ".weight_packed") && !has(name + ".weight_scale")) {
    Tensor stored;
    DSA_TRY(matrix(name + ".weight", {out_dim, in_dim}, stored));
    out = {stored.dtype, stored.data, nullptr, stored.block_scales};
    return Status::ok();
  }
  if (in_dim % kMxfp4Block != 0)
    return error(Code::model, "'", prefix_, name, "' has ", in_dim, " columns; MXFP4 needs a multiple of ",
                 kMxfp4Block);
  DSA_ASSIGN(const StoredTensor* blocks, find(name + ".weight_packed", {out_dim, in_dim / 2}, false));
  DSA_ASSIGN(const StoredTensor* scales,
             find(name + ".weight_scale", {out_dim, in_dim / kMxfp4Block}, false));
  if (blocks->dtype != DType::u8)
    return error(Code::model, file_of(*blocks), ": '", prefix_, name, ".weight_packed' is ",
                 dtype_name(blocks->dtype), ", expected U8");
  if (scales->dtype != DType::u8 && scales->dtype != DType::f8_e8m0)
    return error(Code::model, file_of(*scales), ": '", prefix_, name, ".weight_scale' is ",
                 dtype_name(scales->dtype), ", expected U8 or F8_E8M0 exponents");
  if (reads_all() && memchr(scales->data, 255, scales->bytes) != nullptr)
    return error(Code::model, file_of(*scales), ": '", prefix_, name,
                 ".weight_scale' holds the scale code 255, which is NaN");
  out = {DType::u8, blocks->data, scales->data, nullptr};
  return Status::ok();
}

Status WeightLoader::stacked_experts(const std::string& name, int64_t out_dim, int64_t in_dim,
                                     ExpertMatrix ExpertWeights::*pick, std::vector<ExpertWeights>& out) {
  const int64_t experts = int64_t(out.size());
  if (!has(name + "_blocks") && !has(name + "_scales")) {
    DSA_ASSIGN(const StoredTensor* stored, find(name, {experts, in_dim, out_dim}, false));
    if (stored->dtype != DType::bf16 && stored->dtype != DType::f32)
      return error(Code::model, file_of(*stored), ": '", prefix_, name, "' is ", dtype_name(stored->dtype),
                   ", expected BF16 or F32");
    const size_t size = dtype_bytes(stored->dtype);
    auto* to = static_cast<uint8_t*>(own_bytes(stored->bytes));
    for (int64_t e = 0; e < experts; ++e) {
      const uint8_t* from = stored->data + size_t(e * in_dim * out_dim) * size;
      out[size_t(e)].*pick = {stored->dtype, to, nullptr, nullptr};
      if (!reads_all()) {
        to += size_t(in_dim * out_dim) * size;
        continue;
      }
      for (int64_t o = 0; o < out_dim; ++o)
        for (int64_t i = 0; i < in_dim; ++i, to += size)
          memcpy(to, from + size_t(i * out_dim + o) * size, size);
    }
    return Status::ok();
  }

  if (in_dim % kMxfp4Block != 0)
    return error(Code::model, "'", prefix_, name, "' has ", in_dim, " columns; MXFP4 needs a multiple of ",
                 kMxfp4Block);
  const int64_t groups = in_dim / kMxfp4Block;
  DSA_ASSIGN(const StoredTensor* blocks,
             find(name + "_blocks", {experts, out_dim, groups, kMxfp4Block / 2}, false));
  DSA_ASSIGN(const StoredTensor* scales, find(name + "_scales", {experts, out_dim, groups}, false));
  for (const StoredTensor* tensor : {blocks, scales})
    if (tensor->dtype != DType::u8)
      return error(Code::model, file_of(*tensor), ": '", prefix_, name,
                   tensor == blocks ? "_blocks" : "_scales", "' is ", dtype_name(tensor->dtype),
                   ", expected U8");
  if (reads_all() && memchr(scales->data, 255, scales->bytes) != nullptr)
    return error(Code::model, file_of(*scales), ": '", prefix_, name,
                 "_scales' holds the scale code 255, which is NaN");
  for (int64_t e = 0; e < experts; ++e)
    out[size_t(e)].*pick = {DType::u8, blocks->data + e * out_dim * in_dim / 2,
                            scales->data + e * out_dim * groups, nullptr};
  return Status::ok();
}

void* WeightLoader::own_bytes(size_t bytes) {
  owner_.converted.emplace_back(std::calloc(std::max<size_t>(bytes, 1), 1));
  if (owner_.converted.back() == nullptr) throw std::bad_alloc();
  owner_.converted_bytes += bytes;
  return owner_.converted.back().get();
}

}  // namespace dsa
