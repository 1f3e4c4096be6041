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

constexpr int64_t kValuesMax = int64_t(1) << 44;  // of one tensor; no checkpoint comes near

// Minus one if there are more than any tensor holds.
int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) {
    if (d > 0 && n > kValuesMax / d) return -1;
    n *= d;
  }
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

const StoredTensor* WeightLoader::stored(const std::string& name) const {
  const Checkpoint* checkpoint = survey_ != nullptr ? survey_->listing_->headers.get() : checkpoint_;
  return checkpoint != nullptr ? checkpoint->find(prefix_ + name) : nullptr;
}

std::string WeightLoader::file_of(const StoredTensor& tensor) const {
  const Checkpoint* checkpoint = survey_ != nullptr ? survey_->listing_->headers.get() : checkpoint_;
  const std::string& path = checkpoint->files()[size_t(tensor.file)]->path();
  return path.substr(path.find_last_of('/') + 1);
}

bool WeightLoader::has(const std::string& name, bool assumed) const {
  return survey_ != nullptr ? survey_->has(prefix_ + name, assumed) : stored(name) != nullptr;
}

Status WeightLoader::expect(const std::string& name, bool wanted, const char* why) const {
  if (survey_ != nullptr || has(name, wanted) == wanted) return Status::ok();
  return error(Code::model, "'", prefix_, name, wanted ? "' is missing, but " : "' is there, but ", why);
}

Result<const StoredTensor*> WeightLoader::find(const std::string& name, const std::vector<int64_t>& shape,
                                               TensorUse use, bool at_least) {
  if (count_of(shape) < 0)
    return error(Code::limit, "tensor '", prefix_, name, "' would be ", shape_text(shape),
                 ", more than any file holds");
  const StoredTensor* tensor = stored(name);
  Status problem;
  if (tensor == nullptr && (survey_ == nullptr || !has(name, true)))  // an index knows it by name alone
    problem = error(Code::model, "tensor '", prefix_, name, "' is missing, expected ", shape_text(shape));
  else if (tensor != nullptr && !shapes_agree(tensor->shape, shape, at_least))
    problem = error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", shape_text(tensor->shape),
                    ", expected ", shape_text(shape));
  else if (tensor != nullptr && !accepts(use, tensor->dtype))
    problem = error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", dtype_name(tensor->dtype),
                    ", expected ", accepted_formats(use));
  if (survey_ != nullptr) return survey_->note(prefix_ + name, shape, use, problem);
  DSA_TRY(problem);
  return tensor;
}

const void* WeightLoader::aligned(const StoredTensor& tensor) {
  if (reinterpret_cast<uintptr_t>(tensor.data) % dtype_bytes(tensor.dtype) == 0) return tensor.data;
  if (survey_ != nullptr) {
    owner_.converted_bytes += tensor.bytes;
    return tensor.data;
  }
  void* copy = own_bytes(tensor.bytes);
  if (reads_all()) memcpy(copy, tensor.data, tensor.bytes);
  return copy;
}

Status WeightLoader::matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out) {
  return matrix_of(TensorUse::matrix, name, shape, out);
}

Status WeightLoader::matrix_of(TensorUse use, const std::string& name, const std::vector<int64_t>& shape,
                               Tensor& out) {
  DSA_ASSIGN(const StoredTensor* tensor, find(name, shape, use));
  out = view(aligned(*tensor), tensor->dtype, shape);
  if (tensor->dtype == DType::f8_e4m3) {
    DSA_ASSIGN(out.block_scales, block_scales(name + "_scale_inv", shape));
  } else if (survey_ == nullptr && has(name + "_scale_inv", false)) {
    return error(Code::model, file_of(*tensor), ": '", prefix_, name, "' is ", dtype_name(tensor->dtype),
                 " but has scales, expected F8_E4M3");
  }
  return Status::ok();
}

Result<const float*> WeightLoader::block_scales(const std::string& name, const std::vector<int64_t>& shape) {
  const auto blocks = [](int64_t n) { return (n + kFp8Block - 1) / kFp8Block; };
  Tensor scales;
  DSA_TRY(vector_of(TensorUse::tile_scales, name, {blocks(shape[0]), blocks(shape[1])}, scales, false));
  if (survey_ != nullptr) return static_cast<const float*>(nullptr);
  for (int64_t i = 0; reads_all() && i < scales.count(); ++i)
    if (!std::isfinite(scales.f32()[i]))
      return error(Code::model, "'", prefix_, name, "' holds ", scales.f32()[i], " at ", i,
                   ", expected finite scales");
  return static_cast<const float*>(scales.f32());
}

Status WeightLoader::plain_matrix(const std::string& name, std::vector<int64_t> shape, Tensor& out) {
  DSA_TRY(matrix_of(TensorUse::plain_matrix, name, shape, out));
  if (out.dtype != DType::f8_e4m3) return Status::ok();
  const auto* codes = out.as<const uint8_t>();
  const int64_t rows = shape[0], columns = shape[1];
  float* values = own(size_t(rows) * size_t(columns));
  if (values != nullptr && reads_all())
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        values[r * columns + c] = fp8_value(codes, out.block_scales, columns, r, c);
  out = view(values, DType::f32, shape);
  return Status::ok();
}

Status WeightLoader::vector(const std::string& name, std::vector<int64_t> shape, Tensor& out, bool at_least) {
  return vector_of(TensorUse::vector, name, shape, out, at_least);
}

Status WeightLoader::vector_of(TensorUse use, const std::string& name, const std::vector<int64_t>& shape,
                               Tensor& out, bool at_least) {
  DSA_ASSIGN(const StoredTensor* tensor, find(name, shape, use, at_least));
  const size_t n = size_t(count_of(shape));
  float* values = own(n);
  for (size_t i = 0; values != nullptr && reads_all() && i < n; ++i) {
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
  for (int64_t i = 0; values != nullptr && i < n; ++i) values[i] = x.f32()[i] * y.f32()[i];
  out = Tensor(values, DType::f32, {n});
  return Status::ok();
}

Status WeightLoader::for_each_expert(int64_t experts, std::vector<ExpertWeights>& out,
                                     const ExpertLoader& f) {
  if (survey_ == nullptr) {
    out.resize(size_t(experts));
    for (int64_t e = 0; e < experts; ++e) DSA_TRY(f(e, out[size_t(e)]));
    return Status::ok();
  }
  // All experts of a config are alike.
  ExpertWeights nothing;
  const int64_t asked = survey_->from_config_alone() ? 1 : experts;
  survey_->times_ = uint64_t(experts / asked);
  for (int64_t e = 0; e < asked; ++e) DSA_TRY(f(e, nothing));
  survey_->times_ = 1;
  return Status::ok();
}

// 255 is NaN.
Status WeightLoader::check_exponents(const StoredTensor& scales, const std::string& name) const {
  if (survey_ != nullptr || !reads_all() || memchr(scales.data, 255, scales.bytes) == nullptr)
    return Status::ok();
  return error(Code::model, file_of(scales), ": '", prefix_, name,
               "' holds the scale code 255, which is NaN");
}

Status WeightLoader::expert_matrix(const std::string& name, int64_t out_dim, int64_t in_dim,
                                   ExpertMatrix& out) {
  const bool announced =
      survey_ != nullptr && survey_->config_->quantization.mxfp4 && in_dim % kMxfp4Block == 0;
  if (!has(name + ".weight_packed", announced) && !has(name + ".weight_scale", announced)) {
    Tensor whole;
    DSA_TRY(matrix(name + ".weight", {out_dim, in_dim}, whole));
    out = {whole.dtype, whole.data, nullptr, whole.block_scales};
    return Status::ok();
  }
  if (in_dim % kMxfp4Block != 0)
    return error(Code::model, "'", prefix_, name, "' has ", in_dim, " columns; MXFP4 needs a multiple of ",
                 kMxfp4Block);
  DSA_ASSIGN(const StoredTensor* blocks,
             find(name + ".weight_packed", {out_dim, in_dim / 2}, TensorUse::mxfp4_blocks));
  out = {DType::u8, blocks->data, nullptr, nullptr};
  DSA_ASSIGN(const StoredTensor* scales,
             find(name + ".weight_scale", {out_dim, in_dim / kMxfp4Block}, TensorUse::mxfp4_scales));
  DSA_TRY(check_exponents(*scales, name + ".weight_scale"));
  out.scales = scales->data;
  return Status::ok();
}

Status WeightLoader::stacked_experts(const std::string& name, int64_t experts, int64_t out_dim,
                                     int64_t in_dim, ExpertMatrix ExpertWeights::*pick,
                                     std::vector<ExpertWeights>& out) {
  if (survey_ == nullptr) out.resize(size_t(experts));
  const bool announced =
      survey_ != nullptr && survey_->config_->quantization.mxfp4 && in_dim % kMxfp4Block == 0;
  if (!has(name + "_blocks", announced) && !has(name + "_scales", announced)) {
    DSA_ASSIGN(const StoredTensor* whole, find(name, {experts, in_dim, out_dim}, TensorUse::stacked_experts));
    if (survey_ != nullptr) {
      owner_.converted_bytes += whole->bytes;
      return Status::ok();
    }
    const size_t size = dtype_bytes(whole->dtype);
    auto* to = static_cast<uint8_t*>(own_bytes(whole->bytes));
    for (int64_t e = 0; e < experts; ++e) {
      const uint8_t* from = whole->data + size_t(e * in_dim * out_dim) * size;
      out[size_t(e)].*pick = {whole->dtype, to, nullptr, nullptr};
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
             find(name + "_blocks", {experts, out_dim, groups, kMxfp4Block / 2}, TensorUse::mxfp4_blocks));
  const uint8_t* block_data = blocks->data;
  DSA_ASSIGN(const StoredTensor* scales,
             find(name + "_scales", {experts, out_dim, groups}, TensorUse::mxfp4_scales));
  DSA_TRY(check_exponents(*scales, name + "_scales"));
  if (survey_ != nullptr) return Status::ok();
  for (int64_t e = 0; e < experts; ++e)
    out[size_t(e)].*pick = {DType::u8, block_data + e * out_dim * in_dim / 2,
                            scales->data + e * out_dim * groups, nullptr};
  return Status::ok();
}

void* WeightLoader::own_bytes(size_t bytes) {
  owner_.converted.emplace_back(std::calloc(std::max<size_t>(bytes, 1), 1));
  if (owner_.converted.back() == nullptr) throw std::bad_alloc();
  owner_.converted_bytes += bytes;
  return owner_.converted.back().get();
}

float* WeightLoader::own(size_t floats) {
  if (survey_ == nullptr) return static_cast<float*>(own_bytes(floats * sizeof(float)));
  owner_.converted_bytes += floats * sizeof(float);
  return nullptr;
}

}  // namespace dsa
