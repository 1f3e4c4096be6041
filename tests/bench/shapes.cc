// tests/bench/shapes.cc: the shapes that have a name: published models, whole or cut to their first layers with all
// experts in MXFP4, and small ones of K3.1's architecture.
#include "bench/published.h"
#include "bench/synthetic_model.h"

namespace dsa::bench {
namespace {

Json published(const char* text) {
  return parse_json(text, "a published config", {.python_numbers = true}).value();
}

// Numbers of layers up to `last`.
void cut_numbers(Json& list, int last) {
  Json kept = Json::array();
  for (const Json& number : list)
    if (number.get<int>() <= last) kept.push_back(number);
  list = kept;
}

// `first` is the number of the first layer in the lists of the family.
void cut_layers(Json& text, int layers, int first) {
  text["num_hidden_layers"] = layers;
  for (const char* list : {"full_attn_layers", "kda_layers"})
    cut_numbers(text["linear_attn_config"][list], layers - 1 + first);
  if (text.contains("dsa_config")) cut_numbers(text["dsa_config"]["dsa_layers"], layers - 1 + first);
  for (const char* list : {"indexer_types", "layer_types", "mlp_layer_types"})
    if (text.contains(list)) text[list].erase(text[list].begin() + layers, text[list].end());
}

const Json& mxfp4() {
  static const auto& config = *new Json{{"quant_method", "mxfp4"}};
  return config;
}

Json kimi_linear() {
  Json config = published(kKimiLinear48b);
  config["quantization_config"] = mxfp4();
  return config;
}

Json kimi_linear_slice() {
  Json config = kimi_linear();
  cut_layers(config, 4, 1);
  return config;
}

// One dense layer, three with experts, of which the last has latent attention with an indexer.
Json kimi_k31_slice() {
  Json config = published(kKimiK31Pro);
  cut_layers(config["text_config"], 4, 1);
  config["text_config"]["quantization_config"] = mxfp4();
  return config;
}

// Two groups of three KDA layers and a sparse one; matrices beside the experts stay FP8.
Json glm_53_slice() {
  Json config = published(kGlm53Flash);
  config.erase("vision_config");
  cut_layers(config["text_config"], 8, 0);
  config["text_config"]["quantization_config"] = mxfp4();
  return config;
}

// Every fourth layer and the last are latent attention with an indexer, the rest KDA.
struct KimiShape {
  int hidden, layers, vocab, experts, experts_per_token, expert_dim, latent_dim, q_rank, kv_rank, head_dim,
      top_k;
};
constexpr KimiShape kSmall{2048, 8, 16384, 16, 8, 2048, 2048, 512, 512, 128, 128};
constexpr KimiShape kTiny{128, 4, 256, 8, 2, 64, 64, 64, 64, 32, 16};

Json kimi_k31(const KimiShape& s) {
  Json kda = Json::array(), latent = Json::array();
  for (int l = 1; l <= s.layers; ++l) (l % 4 == 0 || l == s.layers ? latent : kda).push_back(l);
  const int heads = s.hidden / s.head_dim;
  Json text = {{"model_type", "kimi_linear"},
               {"vocab_size", s.vocab},
               {"hidden_size", s.hidden},
               {"num_hidden_layers", s.layers},
               {"max_position_embeddings", 65536},
               {"rms_norm_eps", 1e-5},
               {"hidden_act", "situ"},
               {"activation_situ_beta", 4.0},
               {"activation_situ_linear_beta", 25.0},
               {"attn_res_block_size", 4},
               {"first_k_dense_replace", 1},
               {"moe_layer_freq", 1},
               {"intermediate_size", 2 * s.hidden},
               {"latent_moe_use_norm", true},
               {"mla_use_nope", true},
               {"mla_use_output_gate", true},
               {"moe_intermediate_size", s.expert_dim},
               {"moe_renormalize", true},
               {"moe_router_activation_func", "sigmoid"},
               {"num_attention_heads", heads},
               {"num_key_value_heads", heads},
               {"num_experts", s.experts},
               {"num_experts_per_token", s.experts_per_token},
               {"num_shared_experts", 1},
               {"q_lora_rank", s.q_rank},
               {"kv_lora_rank", s.kv_rank},
               {"qk_nope_head_dim", s.head_dim},
               {"qk_rope_head_dim", s.head_dim / 2},
               {"quantization_config", mxfp4()},
               {"v_head_dim", s.head_dim},
               {"routed_expert_hidden_size", s.latent_dim},
               {"routed_scaling_factor", 1.0},
               {"linear_attn_config",
                {{"full_attn_layers", latent},
                 {"kda_layers", kda},
                 {"gate_lower_bound", -5.0},
                 {"head_dim", s.head_dim},
                 {"num_heads", heads},
                 {"short_conv_kernel_size", 4},
                 {"use_full_rank_gate", true}}},
               {"dsa_config",
                {{"dsa_layers", latent},
                 {"index_head_dim", s.head_dim},
                 {"index_n_heads", 8},
                 {"index_topk", s.top_k}}}};
  return {{"architectures", {"KimiK31ForConditionalGeneration"}}, {"text_config", text}};
}

}  // namespace

Json shape_config(const std::string& name) {
  if (name == "kimi-linear-48b") return kimi_linear();
  if (name == "kimi-linear-slice") return kimi_linear_slice();
  if (name == "kimi-k3-slice") return kimi_k31_slice();
  if (name == "glm-5.3-flash-slice") return glm_53_slice();
  if (name == "small") return kimi_k31(kSmall);
  if (name == "tiny") return kimi_k31(kTiny);
  return {};
}

const std::vector<ShapeName>& shape_names() {
  static const auto& names = *new std::vector<ShapeName>{
      {"kimi-linear-48b", "Kimi-Linear 48B, whole"},
      {"kimi-linear-slice", "its first 4 layers"},
      {"kimi-k3-slice", "4 layers of Kimi K3.1, one of them with an indexer"},
      {"glm-5.3-flash-slice", "8 layers of GLM-5.3-Flash, two of them with indexers"},
      {"small", "8 layers of K3.1's architecture, 1.55 GB"},
      {"tiny", "4 layers of K3.1's architecture, for tests"}};
  return names;
}

}  // namespace dsa::bench
