#include "model/model_config.h"

#include "model/families/families.h"
#include "model/weight_survey.h"

namespace dsa {

const std::vector<const Family*>& families() {
  static const auto& all = *new std::vector<const Family*>{
      &kimi_k3_family(), &kimi_linear_family(), &deepseek_v32_family(), &glm_moe_dsa_family(),
      &gpt_oss_family(), &glm5_next_family(),   &deepseek_v4_family()};
  return all;
}

const Family* find_family(const std::string& architecture) {
  for (const Family* family : families())
    for (const std::string& name : family->architectures)
      if (name == architecture) return family;
  return nullptr;
}

Result<std::shared_ptr<const ModelConfig>> parse_model_config(const Json& json, const std::string& where,
                                                              const std::string& folder) {
  if (!json.is_object()) return error(Code::model, where, ": expected an object");
  const JsonFields fields(json, where);
  DSA_ASSIGN(const std::vector<std::string> architectures, fields.strings("architectures"));
  if (architectures.empty()) return error(Code::model, where, ": 'architectures' is empty");
  const Family* family = find_family(architectures[0]);
  if (family == nullptr) {
    std::string known;
    for (const Family* f : families())
      for (const std::string& name : f->architectures) known += (known.empty() ? "" : ", ") + name;
    return error(Code::unsupported, where, ": architecture '", architectures[0], "' is not known; known are ",
                 known);
  }
  auto config = std::make_shared<ModelConfig>();
  config->family = family->name;
  config->architecture = architectures[0];
  DSA_TRY(family->parse(fields, *config));
  DSA_ASSIGN(const WeightSurvey survey, WeightSurvey::of(*config, {}));
  config->parameters = survey.parameters();
  config->active_parameters = survey.active_parameters();
  if (config->vision.layers > 0 && !folder.empty()) {
    const std::string path = join_path(folder, "preprocessor_config.json");
    auto read = read_json_file(path, {.python_numbers = true});
    if (family->preprocessor_optional && read.status().code() == Code::not_found)
      return std::shared_ptr<const ModelConfig>(std::move(config));
    DSA_ASSIGN(Json preprocessor, std::move(read));
    const JsonRelease release(preprocessor);
    if (!preprocessor.is_object()) return error(Code::model, path, ": expected an object");
    DSA_TRY(family->parse_preprocessor(JsonFields(preprocessor, path), *config));
  }
  return std::shared_ptr<const ModelConfig>(std::move(config));
}

StateLayout state_layout_of(const ModelConfig& c, CacheFormat format) {
  StateLayout layout;
  layout.format = format;
  layout.latent_dim = c.latent.latent_dim + c.latent.rope_dim;
  layout.latent_coded = c.latent.latent_dim;
  layout.kv_dim = c.grouped.kv_dim();
  layout.index_dim = c.indexer.dim;
  layout.index_group = c.indexer.group;
  layout.recurrent_floats = size_t(c.kda.heads) * size_t(c.kda.head_dim) * size_t(c.kda.head_dim);
  layout.conv_floats = size_t(c.kda.conv_width - 1) * 3 * size_t(c.kda.heads) * size_t(c.kda.head_dim);
  for (const LayerConfig& layer : c.layers) {
    switch (layer.attention) {
      case AttentionKind::kda: ++layout.kda_layers; break;
      case AttentionKind::latent: ++layout.latent_layers; break;
      case AttentionKind::grouped: ++layout.kv_layers; break;
    }
    if (layer.indexer == IndexerKind::full) ++layout.index_layers;
  }
  return layout;
}

}  // namespace dsa
