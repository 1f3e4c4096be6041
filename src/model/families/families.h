// model/families/families.h: one mapping file per family: from its config keys and tensor names to building
// blocks.
#pragma once

#include "model/model_config.h"
#include "model/weights.h"

namespace dsa {

struct ExpertNames;

struct Family {
  const char* name;
  std::vector<std::string> architectures;
  Status (*parse)(const JsonFields& config, ModelConfig& out);
  // Called if the config has a vision part, with preprocessor_config.json.
  Status (*parse_preprocessor)(const JsonFields& preprocessor, ModelConfig& out);
  Status (*load)(WeightLoader& loader, const ModelConfig& config, DecoderWeights& out);
  const ExpertNames* experts;          // null: none that we know
  bool preprocessor_optional = false;  // without the file, parse has set what it says
};

const Family& kimi_k3_family();
const Family& kimi_linear_family();
const Family& deepseek_v32_family();
const Family& deepseek_v4_family();  // refuses
const Family& glm_moe_dsa_family();
const Family& gpt_oss_family();
const Family& glm5_next_family();

// The vision part of the Kimi families: config.json, preprocessor_config.json, weights. Parameters are added up.
Status parse_kimi_vision(const JsonFields& config, ModelConfig& out);
Status parse_kimi_preprocessor(const JsonFields& preprocessor, ModelConfig& out);
Status load_kimi_vision(const WeightLoader& loader, const ModelConfig& config, VisionWeights& out);

// The vision part of GLM-5.3-Flash, in the same order.
Status parse_glm_vision(const JsonFields& config, ModelConfig& out);
Status parse_glm_preprocessor(const JsonFields& preprocessor, ModelConfig& out);
Status load_glm_vision(const WeightLoader& loader, const ModelConfig& config, VisionWeights& out);

const std::vector<const Family*>& families();
// Null if no family owns the architecture.
const Family* find_family(const std::string& architecture);

}  // namespace dsa
