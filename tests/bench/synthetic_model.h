// tests/bench/synthetic_model.h: a checkpoint of random weights for any config, large enough to be bound by it.
//
// Its tensors are those that the loader of the family asks for. It lies in a memory file, of which only what somebody
// wrote takes memory: a device that makes the weights where it needs them leaves the rest of the file empty.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/synthetic_values.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "model/model_config.h"
#include "model/weight_survey.h"

namespace dsa::bench {

struct SyntheticTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype;
  uint64_t offset, bytes;  // in the file
  FillRule rule;
  bool in_file;  // its values are there
};

struct SyntheticModel {
  std::shared_ptr<const ModelConfig> config;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<SyntheticTensor> tensors;  // by offset
  uint64_t step_bytes = 0;               // of weights that every step with logits reads
  uint64_t head_bytes = 0;               // of them for the logits
  uint64_t expert_bytes = 0;             // of one routed expert

  const uint8_t* data() const { return checkpoint->files()[0]->data(); }
};

// Which values the file holds: all, or those that a load reads or converts on the host.
enum class InFile { all, read_by_host };

Result<SyntheticModel> make_synthetic_model(const Json& config, InFile in_file);

// Bytes [begin, begin + bytes) of a tensor.
void fill_synthetic(const FillRule& rule, uint64_t begin, void* to, uint64_t bytes);

// The config of a named shape; empty if there is none. The names, with what they are.
Json shape_config(const std::string& name);
struct ShapeName {
  const char *name, *what;
};
const std::vector<ShapeName>& shape_names();

}  // namespace dsa::bench
