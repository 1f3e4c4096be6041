// model/families/kimi_k3.cc: Kimi K3 and K3.1 (K3 with an indexer on its latent attention layers).
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

Status parse_attention(const JsonFields& text, ModelConfig& out) {
  DSA_TRY(parse_linear_attention(text, 1, out));
  if (out.kda.gate_lower_bound == 0)
    return error(Code::model, text.where(), ": linear_attn_config: 'gate_lower_bound' is missing");
  if (out.kda.low_rank_output)
    return error(Code::unsupported, text.where(),
                 ": linear_attn_config: 'use_full_rank_gate' is false, expected true for this family");
  DSA_TRY(parse_latent_attention(text, 1, false, out));
  DSA_TRY(expect_boolean(text, "mla_use_nope", false, true));
  DSA_TRY(expect_boolean(text, "mla_use_output_gate", false, true));
  out.latent.output_gate = true;
  return Status::ok();
}

Status parse_sparse_layers(const JsonFields& text, ModelConfig& out) {
  if (!text.has("dsa_config")) return Status::ok();
  DSA_ASSIGN(const JsonFields dsa, text.object("dsa_config"));
  DSA_TRY(parse_indexer(dsa, out));
  out.indexer.norm_bias = false;  // no published file shows whether there is one
  DSA_ASSIGN(const std::vector<int64_t> list, dsa.integers("dsa_layers", 1, int64_t(out.layers.size())));
  if (list.empty()) return error(Code::model, dsa.where(), ": 'dsa_layers' is empty");
  for (int64_t layer : list) {
    LayerConfig& config = out.layers[size_t(layer - 1)];
    if (config.attention != AttentionKind::latent)
      return error(Code::model, dsa.where(), ": 'dsa_layers' names layer ", layer, ", which is a KDA layer");
    config.indexer = IndexerKind::full;
  }
  return Status::ok();
}

Status parse_feed_forward(const JsonFields& text, ModelConfig& out) {
  DSA_ASSIGN(const std::string act, text.string("hidden_act"));
  DSA_TRY(expect_string(text, "hidden_act", "situ"));
  DSA_ASSIGN(const double beta, text.number_or("activation_situ_beta", 1.0));
  DSA_ASSIGN(const double linear_beta, text.number_or("activation_situ_linear_beta", 0.0));
  if (!(beta > 0) || !(linear_beta >= 0))
    return error(Code::model, text.where(), ": 'activation_situ_beta' is ", beta,
                 " and 'activation_situ_linear_beta' is ", linear_beta, ", expected positive numbers");
  out.mlp.activation = {.kind = ActivationKind::situ, .beta = float(beta), .linear_beta = float(linear_beta)};
  DSA_TRY(parse_kimi_experts(text, out));
  DSA_ASSIGN(out.moe.latent_dim, text.integer("routed_expert_hidden_size", 1, kMaxDim));
  if (!text.has("latent_moe_use_norm"))  // public config classes default it to false and lose the norm
    return error(Code::model, text.where(), ": 'latent_moe_use_norm' is missing");
  DSA_ASSIGN(out.moe.latent_norm, text.boolean_or("latent_moe_use_norm", true));
  return Status::ok();
}

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields text, config.object("text_config"));
  DSA_TRY(parse_kimi_decoder(
      text, "max_position_embeddings",
      {"activation_situ_beta", "activation_situ_linear_beta", "attn_res_block_size", "dsa_config",
       "latent_moe_use_norm", "max_position_embeddings", "routed_expert_hidden_size"},
      out));
  DSA_ASSIGN(out.residual_block, text.integer("attn_res_block_size", 1, 4096));
  out.residual = ResidualKind::attn_residual;
  if ((int64_t(out.layers.size()) + out.residual_block - 1) / out.residual_block + 1 > 64)
    return error(Code::unsupported, text.where(), ": 'attn_res_block_size' ", out.residual_block,
                 " gives more than 64 sources");
  DSA_TRY(parse_attention(text, out));
  DSA_TRY(parse_sparse_layers(text, out));
  DSA_TRY(parse_feed_forward(text, out));
  for (const JsonFields& fields : {config, text}) DSA_TRY(parse_end_tokens(fields, out));
  DSA_TRY(parse_quantization(text, out));
  out.tensor_prefix = "language_model.";
  return config.has("vision_config") ? parse_kimi_vision(config, out) : Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  const int64_t hidden = c.hidden;
  DSA_TRY(load_ends(loader, c, out));
  DSA_TRY(loader.product("model.output_attn_res_norm.weight", {hidden}, "model.output_attn_res_proj.weight",
                         {1, hidden}, out.output_mix));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const std::string layer = concat("model.layers.", l, ".");
    LayerWeights& w = out.layers[l];
    DSA_TRY(loader.product(layer + "self_attention_res_norm.weight", {hidden},
                           layer + "self_attention_res_proj.weight", {1, hidden}, w.attn_mix));
    DSA_TRY(loader.product(layer + "mlp_res_norm.weight", {hidden}, layer + "mlp_res_proj.weight",
                           {1, hidden}, w.mlp_mix));
    DSA_TRY(load_layer(loader, layer, c, c.layers[l], kKimiExperts, w));
  }
  return c.vision.layers > 0 ? load_kimi_vision(loader, c, out.vision) : Status::ok();
}

}  // namespace

const Family& kimi_k3_family() {
  static const Family& family =
      *new Family{"kimi_k3", {"KimiK3ForConditionalGeneration", "KimiK31ForConditionalGeneration"},
                  parse,     parse_kimi_preprocessor,
                  load,      &kKimiExperts};
  return family;
}

}  // namespace dsa
