// model/weight_survey.h: what a load asks of a checkpoint, noted without reading a weight.
//
// A survey runs the loader of the family, so its names and shapes are those of a load. It works on a folder that is
// complete, on one that has some of its files or its index alone, and on a config alone: then every tensor counts as
// expected, in the number formats that the config announces, and none as found.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "model/model_config.h"

namespace dsa {

// What a tensor is to the loader: what it may be stored as, and what becomes of it.
enum class TensorUse {
  matrix,
  plain_matrix,
  vector,
  tile_scales,
  mxfp4_blocks,
  mxfp4_scales,
  stacked_experts
};

const char* accepted_formats(TensorUse use);  // for messages
bool accepts(TensorUse use, DType dtype);

enum class Precision { exact, rounded };
// What happens to the values of a tensor on their way into a product.
struct PrecisionPath {
  Precision precision;
  const char* how;
};

// feed_forward: what every token passes: dense layers, shared experts, the way into and out of a latent space.
// residual: norms of layers, mixes of attention residuals and hyper-connections.
enum class WeightPart {
  embedding,
  head,
  attention,
  indexer,
  router,
  routed_experts,
  feed_forward,
  residual,
  vision
};
constexpr size_t kWeightParts = 9;
const char* part_name(WeightPart part);
// How products are computed: by the CPU, by a GPU, or by one that takes MXFP4 experts of many rows through FP8.
enum class Products { cpu, gpu, gpu_fp8 };
PrecisionPath precision_of(WeightPart part, TensorUse use, DType dtype, Route route,
                           Products products = Products::cpu);

// Tensors of one name, with * for the numbers of layers, blocks and experts, and of one format: that of the files, else
// that which the config announces.
struct TensorPattern {
  WeightPart part = WeightPart::residual;
  TensorUse use = TensorUse::vector;
  std::vector<int64_t> shape;  // of one
  uint64_t expected = 0, found = 0, missing = 0, refused = 0;
  uint64_t parameters = 0;  // of all that are expected; scales are none
  uint64_t bytes = 0;
  std::string problem;  // the first one, as a load would say it
};

// Tensors that no load asks for.
struct StrangerPattern {
  uint64_t count = 0, bytes = 0;
  std::string example;
};

struct WeightTotals {
  uint64_t parameters = 0, bytes = 0;
};

// Bytes on disk of one decoder layer.
struct LayerTotals {
  uint64_t fixed_bytes = 0, expert_bytes = 0;
};

// A tensor that a load asks for, in the format of the files, else that which the config announces.
struct TensorRequest {
  const std::string& name;
  const std::vector<int64_t>& shape;
  TensorUse use;
  WeightPart part;
  DType dtype;
  uint64_t times;  // experts that a config alone asks for at once; the name is that of the first
};
using OnTensorRequest = std::function<void(const TensorRequest& request)>;

class WeightSurvey {
 public:
  // Code::limit if the config asks for more than any checkpoint holds. `on_request` may be empty.
  static Result<WeightSurvey> of(const ModelConfig& config, const TensorListing& listing,
                                 const OnTensorRequest& on_request = {});

  bool from_config_alone() const { return from_config_alone_; }
  using Patterns = std::map<std::pair<std::string, DType>, TensorPattern>;
  const Patterns& patterns() const { return patterns_; }
  const std::map<std::string, StrangerPattern>& unexpected() const { return unexpected_; }
  // Of layers behind the last one: draft layers, which are not run.
  const std::map<std::string, StrangerPattern>& unused() const { return unused_; }
  uint64_t expected() const { return expected_; }
  uint64_t found() const { return found_; }
  uint64_t missing() const { return missing_; }
  uint64_t refused() const { return refused_; }

  const WeightTotals& part(WeightPart part) const { return parts_[size_t(part)]; }
  const std::vector<LayerTotals>& layers() const { return layers_; }
  uint64_t parameters() const;
  // Read for one token: all but the embeddings and the tower, and of the routed experts those that it takes.
  uint64_t active_parameters() const;
  uint64_t bytes() const { return bytes_; }
  uint64_t expert_bytes() const { return part(WeightPart::routed_experts).bytes; }
  // Memory that a load takes beside the files: small tensors as f32, and what lies in the file as no operator reads it.
  uint64_t converted_bytes() const { return converted_bytes_; }

 private:
  friend class WeightLoader;

  WeightSurvey(const ModelConfig& config, const TensorListing& listing, const OnTensorRequest& on_request);
  bool has(const std::string& name, bool assumed) const;
  // Notes one request; what it returns stands for the tensor until the next call.
  Result<const StoredTensor*> note(const std::string& name, const std::vector<int64_t>& shape, TensorUse use,
                                   const Status& problem);
  DType announced(const std::string& name, TensorUse use, WeightPart part) const;
  void note_strangers();

  const ModelConfig* config_;  // all three are gone after of()
  const TensorListing* listing_;
  const OnTensorRequest* on_request_;
  bool from_config_alone_;
  uint64_t experts_, experts_per_token_;
  Patterns patterns_;
  std::map<std::string, StrangerPattern> unexpected_, unused_;
  std::map<std::string, bool, std::less<>> asked_;  // names of the listing that a load reads
  std::array<WeightTotals, kWeightParts> parts_;
  std::vector<LayerTotals> layers_;
  uint64_t expected_ = 0, found_ = 0, missing_ = 0, refused_ = 0, converted_bytes_ = 0, bytes_ = 0;
  uint64_t times_ = 1;  // of each request: experts of a config alone are asked for once
  StoredTensor stand_in_{};
};

}  // namespace dsa
