#include "model/weight_survey.h"

#include <algorithm>

#include "kernels/common/numbers.h"
#include "model/families/families.h"
#include "model/weights.h"

namespace dsa {
namespace {

constexpr uint64_t kMissingMax = 1'000'000;        // then the folder is of another model
constexpr uint64_t kBytesMax = uint64_t(1) << 48;  // of all tensors; no checkpoint comes near

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The pattern of a name, and the number of its decoder layer, -1 without one.
struct ReadName {
  std::string pattern;
  int64_t layer = -1;
};

ReadName read_name(std::string_view name) {
  ReadName read;
  std::string_view before;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view piece = name.substr(0, dot);
    const bool counts = before == "layers" || before == "blocks" || before == "experts";
    if (counts && is_number(piece)) {
      if (before == "layers" && piece.size() < 10) read.layer = std::stoll(std::string(piece));
      read.pattern += '*';
    } else {
      read.pattern += piece;
    }
    if (dot == std::string_view::npos) return read;
    read.pattern += '.';
    before = piece;
    name.remove_prefix(dot + 1);
  }
}

// The words that the families share, the first one that a name holds.
WeightPart part_of(std::string_view name) {
  static constexpr struct {
    std::string_view word;
    WeightPart part;
  } kWords[] = {{"vision_tower.", WeightPart::vision},    {"mm_projector.", WeightPart::vision},
                {"model.visual.", WeightPart::vision},    {".experts.", WeightPart::routed_experts},
                {".indexer.", WeightPart::indexer},       {".self_attn.", WeightPart::attention},
                {".gate.", WeightPart::router},           {".router.", WeightPart::router},
                {".mlp.", WeightPart::feed_forward},      {".block_sparse_moe.", WeightPart::feed_forward},
                {"embed_tokens.", WeightPart::embedding}, {"lm_head.", WeightPart::head}};
  for (const auto& [word, part] : kWords)
    if (name.find(word) != std::string_view::npos) return part;
  return WeightPart::residual;
}

// Whether a module of the config, "model.layers.*.self_attn", holds a tensor.
bool holds(std::string_view module, std::string_view name) {
  while (true) {
    const size_t a = module.find('.'), b = name.find('.');
    const std::string_view piece = module.substr(0, a);
    if (piece != "*" && piece != name.substr(0, b)) return false;
    if (a == std::string_view::npos) return true;
    if (b == std::string_view::npos) return false;
    module.remove_prefix(a + 1);
    name.remove_prefix(b + 1);
  }
}

uint64_t values_of(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t d : shape) n *= uint64_t(d);
  return n;
}

bool is_scale(TensorUse use) { return use == TensorUse::tile_scales || use == TensorUse::mxfp4_scales; }

void count_stranger(std::map<std::string, StrangerPattern>& patterns, const std::string& pattern,
                    std::string_view name, const StoredTensor* tensor) {
  StrangerPattern& p = patterns[pattern];
  if (p.count++ == 0) p.example = name;
  if (tensor != nullptr) p.bytes += tensor->bytes;
}

}  // namespace

const char* accepted_formats(TensorUse use) {
  switch (use) {
    case TensorUse::matrix:
    case TensorUse::plain_matrix: return "BF16, F32 or F8_E4M3";
    case TensorUse::vector:
    case TensorUse::tile_scales:
    case TensorUse::stacked_experts: return "BF16 or F32";
    case TensorUse::mxfp4_blocks: return "U8";
    case TensorUse::mxfp4_scales: return "U8 or F8_E8M0 exponents";
  }
  return "";
}

bool accepts(TensorUse use, DType dtype) {
  switch (use) {
    case TensorUse::matrix:
    case TensorUse::plain_matrix:
      return dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f8_e4m3;
    case TensorUse::vector:
    case TensorUse::tile_scales:
    case TensorUse::stacked_experts: return dtype == DType::bf16 || dtype == DType::f32;
    case TensorUse::mxfp4_blocks: return dtype == DType::u8;
    case TensorUse::mxfp4_scales: return dtype == DType::u8 || dtype == DType::f8_e8m0;
  }
  return false;
}

namespace {

// Parts whose products keep to the exact route: scores that choose, sums of streams, pictures, and what is only read.
bool always_exact(WeightPart part) {
  return part == WeightPart::embedding || part == WeightPart::indexer || part == WeightPart::router ||
         part == WeightPart::residual || part == WeightPart::vision;
}

}  // namespace

PrecisionPath precision_of(WeightPart part, TensorUse use, DType dtype, Route route, Products products) {
  switch (use) {
    case TensorUse::matrix:
      if (route == Route::fast && !always_exact(part)) {
        if (products == Products::cpu && dtype == DType::bf16)
          return {
              Precision::rounded,
              "weights rounded to 12 bits and a sign in runs of 2,048 columns; activations to 14 bits and a "
              "sign in blocks of 512"};
        if (products != Products::cpu && dtype == DType::bf16)
          return {
              Precision::rounded,
              "weights as stored; activations cut to 16 bits or rounded to bf16 where a step has many rows"};
        if (products != Products::cpu && dtype == DType::f8_e4m3)
          return {Precision::rounded,
                  "code times scale rounded to bf16, activations cut to 16 bits or rounded to bf16, where a "
                  "step has many rows"};
      }
      if (dtype != DType::f8_e4m3) return {Precision::exact, "multiplied as stored, sums in f32"};
      return {Precision::exact, "codes multiplied as stored, sums in f32 times the scale of each tile"};
    case TensorUse::plain_matrix:
      if (route == Route::fast && !always_exact(part) && products != Products::cpu)
        return {Precision::rounded,
                "rounded to bf16, activations cut to 16 bits or rounded to bf16, where a step has many rows"};
      if (dtype != DType::f8_e4m3) return {Precision::exact, "multiplied as stored, sums in f32"};
      return {Precision::rounded, "expanded at load: code times scale, rounded to f32"};
    case TensorUse::vector: return {Precision::exact, "kept as f32"};
    case TensorUse::tile_scales:
    case TensorUse::mxfp4_scales: return {Precision::exact, "used as stored"};
    case TensorUse::mxfp4_blocks:
      if (route == Route::exact) return {Precision::exact, "multiplied as stored, sums in f32"};
      if (products == Products::gpu)
        return {Precision::rounded, "weights as stored; activations rounded to 15 bits in stretches of 256"};
      if (products == Products::gpu_fp8)
        return {Precision::rounded,
                "weights as stored; activations rounded to 15 bits in stretches of 256, or to E4M3 where an "
                "expert "
                "has many rows"};
      return {Precision::rounded, "weights as stored; activations rounded to 9 bits in blocks of 32"};
    case TensorUse::stacked_experts: return {Precision::exact, "turned once at load, sums in f32"};
  }
  return {Precision::exact, ""};
}

const char* part_name(WeightPart part) {
  switch (part) {
    case WeightPart::embedding: return "embedding";
    case WeightPart::head: return "head";
    case WeightPart::attention: return "attention";
    case WeightPart::indexer: return "indexer";
    case WeightPart::router: return "router";
    case WeightPart::routed_experts: return "routed_experts";
    case WeightPart::feed_forward: return "shared_and_dense";
    case WeightPart::residual: return "norms_and_residuals";
    case WeightPart::vision: return "vision";
  }
  return "";
}

WeightSurvey::WeightSurvey(const ModelConfig& config, const TensorListing& listing,
                           const OnTensorRequest& on_request)
    : config_(&config),
      listing_(&listing),
      on_request_(&on_request),
      from_config_alone_(listing.is_empty()),
      experts_(uint64_t(config.moe.experts)),
      experts_per_token_(uint64_t(config.moe.top_k)),
      layers_(config.layers.size()) {}

Result<WeightSurvey> WeightSurvey::of(const ModelConfig& config, const TensorListing& listing,
                                      const OnTensorRequest& on_request) {
  WeightSurvey survey(config, listing, on_request);
  const Family* family = find_family(config.architecture);
  DSA_ASSERT(family != nullptr);
  DecoderWeights nothing;
  WeightLoader loader(survey, config.tensor_prefix, nothing);
  DSA_TRY(family->load(loader, config, nothing));
  survey.converted_bytes_ = nothing.converted_bytes;
  survey.note_strangers();
  return survey;
}

bool WeightSurvey::has(const std::string& name, bool assumed) const {
  return listing_->is_empty() ? assumed : listing_->has(name);
}

// What a matrix is stored as where no header says so.
DType WeightSurvey::announced(const std::string& name, TensorUse use, WeightPart part) const {
  switch (use) {
    case TensorUse::vector:
    case TensorUse::stacked_experts: return DType::bf16;
    case TensorUse::tile_scales: return DType::f32;
    case TensorUse::mxfp4_blocks:
    case TensorUse::mxfp4_scales: return DType::u8;
    case TensorUse::matrix:
    case TensorUse::plain_matrix: break;
  }
  if (!listing_->is_empty()) return listing_->has(name + "_scale_inv") ? DType::f8_e4m3 : DType::bf16;
  // Published FP8 checkpoints keep the ends, the router, the head weights of the indexer, KDA and the tower.
  const Quantization& q = config_->quantization;
  const bool in_blocks = part == WeightPart::attention || part == WeightPart::indexer ||
                         part == WeightPart::routed_experts || part == WeightPart::feed_forward;
  const bool kept = std::any_of(q.plain_modules.begin(), q.plain_modules.end(),
                                [&](const std::string& module) { return holds(module, name); }) ||
                    name.find("weights_proj") != std::string::npos;
  const int64_t layer = read_name(name).layer;
  const bool kda = part == WeightPart::attention && layer >= 0 && size_t(layer) < config_->layers.size() &&
                   config_->layers[size_t(layer)].attention == AttentionKind::kda;
  return q.fp8 && in_blocks && !kept && !kda ? DType::f8_e4m3 : DType::bf16;
}

Result<const StoredTensor*> WeightSurvey::note(const std::string& name, const std::vector<int64_t>& shape,
                                               TensorUse use, const Status& problem) {
  const StoredTensor* stored = listing_->is_empty() ? nullptr : listing_->headers->find(name);
  const bool is_there = has(name, true);
  const ReadName read = read_name(name);
  const WeightPart part = part_of(name);
  const uint64_t values = values_of(shape), per_value = use == TensorUse::mxfp4_blocks ? 2 : 1;
  const DType dtype = stored != nullptr ? stored->dtype : announced(name, use, part);
  // What is known by name alone joins those of its name whose format is known.
  auto at = patterns_.lower_bound({read.pattern, DType(0)});
  if (stored != nullptr || at == patterns_.end() || at->first.first != read.pattern)
    at = patterns_.try_emplace({read.pattern, dtype}).first;
  TensorPattern& pattern = at->second;
  if (pattern.expected == 0) {
    pattern.part = part;
    pattern.use = use;
    pattern.shape = shape;
  }
  const uint64_t bytes = stored != nullptr ? stored->bytes : values * dtype_bytes(dtype);
  bytes_ += times_ * bytes;
  if (bytes_ > kBytesMax)
    return error(Code::limit, "the tensors up to '", name, "' take ", bytes_, " bytes, expected at most ",
                 kBytesMax);
  if (*on_request_) (*on_request_)({name, shape, use, part, dtype, times_});
  pattern.expected += times_;
  expected_ += times_;
  if (!listing_->is_empty()) {
    const bool sound = is_there && problem.is_ok();
    ++(!is_there ? pattern.missing : sound ? pattern.found : pattern.refused);
    ++(!is_there ? missing_ : sound ? found_ : refused_);
    if (is_there) asked_[name] = true;
    if (!sound && pattern.problem.empty()) pattern.problem = problem.message();
    if (missing_ > kMissingMax)
      return error(Code::limit, "more than ", kMissingMax, " tensors of the config are missing, '", name,
                   "' among them");
  }
  const uint64_t parameters = is_scale(use) ? 0 : times_ * values * per_value;
  pattern.parameters += parameters;
  pattern.bytes += times_ * bytes;
  parts_[size_t(part)].parameters += parameters;
  parts_[size_t(part)].bytes += times_ * bytes;
  if (part != WeightPart::vision && read.layer >= 0 && size_t(read.layer) < layers_.size()) {
    LayerTotals& layer = layers_[size_t(read.layer)];
    (part == WeightPart::routed_experts ? layer.expert_bytes : layer.fixed_bytes) += times_ * bytes;
  }
  if (stored != nullptr && problem.is_ok()) return stored;
  stand_in_ = {accepts(use, dtype) ? dtype : DType::bf16, shape, nullptr, bytes, 0};
  return static_cast<const StoredTensor*>(&stand_in_);
}

void WeightSurvey::note_strangers() {
  if (from_config_alone_) return;
  listing_->for_each([&](std::string_view name, const StoredTensor* tensor) {
    if (asked_.find(name) != asked_.end()) return;
    const ReadName read = read_name(name);
    count_stranger(read.layer >= int64_t(layers_.size()) ? unused_ : unexpected_, read.pattern, name, tensor);
  });
  asked_.clear();
}

uint64_t WeightSurvey::parameters() const {
  uint64_t sum = 0;
  for (const WeightTotals& part : parts_) sum += part.parameters;
  return sum;
}

uint64_t WeightSurvey::active_parameters() const {
  uint64_t sum = parameters();
  for (const WeightPart idle : {WeightPart::embedding, WeightPart::vision, WeightPart::routed_experts})
    sum -= part(idle).parameters;
  if (experts_ > 0) sum += part(WeightPart::routed_experts).parameters / experts_ * experts_per_token_;
  return sum;
}

}  // namespace dsa
