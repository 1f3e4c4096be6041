#include "bench/synthetic_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/numbers.h"

namespace dsa::bench {
namespace {

bool holds(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// Values that keep rows at about their size.
FillRule rule_of(const TensorRequest& r, uint64_t seed) {
  FillRule rule;
  rule.seed = scramble(seed);
  const double columns = double(r.shape.back());
  rule.size = float(1 / std::sqrt(columns));
  switch (r.use) {
    case TensorUse::mxfp4_blocks: rule.fill = Fill::e2m1_codes; break;
    case TensorUse::mxfp4_scales:  // codes are 2.9 on average
      rule.fill = Fill::exponents;
      rule.exponent = 127 + int(std::floor(std::log2(rule.size / std::sqrt(double(kMxfp4Block)) / 2.9)));
      break;
    case TensorUse::tile_scales:  // codes are 0.9 on average
      rule.fill = Fill::tile_scales;
      rule.size = float(1 / std::sqrt(columns * kFp8Block) / 0.9);
      break;
    case TensorUse::vector:
      if (holds(r.name, "norm") && !holds(r.name, "bias")) {
        rule.fill = Fill::ones;
      } else if (holds(r.name, "conv1d") || holds(r.name, "_proj.weight")) {
        rule.fill = Fill::normal_bf16;
      }
      break;
    default: rule.fill = r.dtype == DType::f8_e4m3 ? Fill::e4m3_codes : Fill::normal_bf16;
  }
  return rule;
}

bool host_reads(const TensorRequest& r) {
  return r.use == TensorUse::vector || r.use == TensorUse::tile_scales ||
         r.use == TensorUse::stacked_experts ||
         (r.use == TensorUse::plain_matrix && r.dtype == DType::f8_e4m3);
}

// A request for all experts, expert after expert.
std::string name_of(const TensorRequest& r, uint64_t expert) {
  if (r.times == 1) return r.name;
  const std::string first = ".experts.0.";
  std::string name = r.name;
  return name.replace(name.find(first), first.size(), concat(".experts.", expert, "."));
}

Result<std::vector<SyntheticTensor>> tensors_of(const ModelConfig& config, InFile in_file,
                                                SyntheticModel& model) {
  std::vector<SyntheticTensor> tensors;
  DSA_ASSIGN(const WeightSurvey survey, WeightSurvey::of(config, {}, [&](const TensorRequest& r) {
               uint64_t bytes = dtype_bytes(r.dtype);
               for (const int64_t d : r.shape) bytes *= uint64_t(d);
               for (uint64_t e = 0; e < r.times; ++e)
                 tensors.push_back({name_of(r, e), r.shape, r.dtype, 0, bytes, rule_of(r, tensors.size()),
                                    in_file == InFile::all || host_reads(r)});
             }));
  // Wide formats first: then every tensor is aligned.
  std::stable_sort(tensors.begin(), tensors.end(), [](const SyntheticTensor& a, const SyntheticTensor& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  const uint64_t experts = survey.part(WeightPart::routed_experts).bytes;
  uint64_t layers = 0;
  for (const LayerConfig& layer : config.layers) layers += layer.moe ? 1 : 0;
  if (layers > 0) model.expert_bytes = experts / (layers * uint64_t(config.moe.experts));
  model.head_bytes = survey.part(WeightPart::head).bytes;
  model.step_bytes = survey.bytes() - experts - survey.part(WeightPart::embedding).bytes;
  return tensors;
}

}  // namespace

void fill_synthetic(const FillRule& rule, uint64_t begin, void* to, uint64_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  for (uint64_t at = begin, end = begin + bytes; at < end;) {
    const uint64_t word = synthetic_word(rule, at / 8), skipped = at % 8;
    const uint64_t n = std::min(8 - skipped, end - at);
    memcpy(out, reinterpret_cast<const uint8_t*>(&word) + skipped, n);
    out += n;
    at += n;
  }
}

Result<SyntheticModel> make_synthetic_model(const Json& config, InFile in_file) {
  SyntheticModel model;
  DSA_ASSIGN(model.config, parse_model_config(config, "synthetic config", ""));
  DSA_ASSIGN(model.tensors, tensors_of(*model.config, in_file, model));

  Json header = Json::object();
  const JsonRelease release(header);
  uint64_t at = 0;
  for (const SyntheticTensor& tensor : model.tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  uint64_t begin = 8 + text.size();
  const uint64_t size = begin + at, length = text.size();
  for (SyntheticTensor& tensor : model.tensors) {
    tensor.offset = begin;
    begin += tensor.bytes;
  }

  const int fd = memfd_create("dsa_synthetic", 0);
  if (fd < 0 || ftruncate(fd, off_t(size)) != 0)
    return error(Code::out_of_memory, "no memory file of ", size, " bytes");
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) return error(Code::out_of_memory, "no map of ", size, " bytes");
  auto* bytes = static_cast<uint8_t*>(memory);
  memcpy(bytes, &length, 8);
  memcpy(bytes + 8, text.data(), text.size());
  for (const SyntheticTensor& tensor : model.tensors)
    if (tensor.in_file) fill_synthetic(tensor.rule, 0, bytes + tensor.offset, tensor.bytes);
  munmap(memory, size);

  auto checkpoint = Checkpoint::open_file("/proc/self/fd/" + std::to_string(fd));
  close(fd);  // the map keeps the memory
  DSA_TRY(checkpoint.status());
  model.checkpoint = std::move(checkpoint).value();
  return model;
}

}  // namespace dsa::bench
