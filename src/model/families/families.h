// model/families/families.h: one mapping file per family: from its config keys and tensor names to building
// blocks.
#pragma once

#include "model/model_config.h"
#include "model/weights.h"

namespace dsa {

struct Family {
  const char* name;
  std::vector<std::string> architectures;
  Status (*parse)(const JsonFields& config, ModelConfig& out);
  Status (*load)(WeightLoader& loader, const ModelConfig& config, DecoderWeights& out);
};

const Family& kimi_k3_family();

const std::vector<const Family*>& families();
// Null if no family owns the architecture.
const Family* find_family(const std::string& architecture);

}  // namespace dsa
