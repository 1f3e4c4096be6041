// model/families/deepseek_v32.cc: DeepSeek-V3.2 (Exp, final, Speciale): latent attention with an indexer in every layer.
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_TRY(refuse_unknown_keys(config, {"attention_bias",
                                       "first_k_dense_replace",
                                       "head_dim",
                                       "hidden_act",
                                       "hidden_size",
                                       "index_head_dim",
                                       "index_n_heads",
                                       "index_topk",
                                       "indexer_rope_interleave",
                                       "intermediate_size",
                                       "kv_lora_rank",
                                       "max_position_embeddings",
                                       "moe_intermediate_size",
                                       "moe_layer_freq",
                                       "n_group",
                                       "n_routed_experts",
                                       "n_shared_experts",
                                       "norm_topk_prob",
                                       "num_attention_heads",
                                       "num_experts_per_tok",
                                       "num_hidden_layers",
                                       "num_key_value_heads",
                                       "num_nextn_predict_layers",
                                       "q_lora_rank",
                                       "qk_head_dim",
                                       "qk_nope_head_dim",
                                       "qk_rope_head_dim",
                                       "quantization_config",
                                       "rms_norm_eps",
                                       "rope_interleave",
                                       "rope_parameters",
                                       "rope_scaling",
                                       "rope_theta",
                                       "routed_scaling_factor",
                                       "scoring_func",
                                       "tie_word_embeddings",
                                       "topk_group",
                                       "topk_method",
                                       "v_head_dim",
                                       "vocab_size"}));
  out.residual = ResidualKind::plain;
  DSA_TRY(parse_decoder(config, "max_position_embeddings", out));
  DSA_TRY(parse_latent_attention(config, 2, false, out));
  DSA_TRY(parse_rope(config, "qk_rope_head_dim", out.latent.rope_dim, out.rope, out.latent.scale));
  DSA_TRY(expect_boolean(config, "rope_interleave", true, true));
  out.latent.rope = RopeKind::pairs;
  DSA_TRY(parse_indexer(config, out));
  DSA_ASSIGN(const bool index_pairs, config.boolean_or("indexer_rope_interleave", false));
  out.indexer.rope = index_pairs ? RopeKind::pairs : RopeKind::halves;
  for (LayerConfig& layer : out.layers) {
    layer.attention = AttentionKind::latent;
    layer.indexer = IndexerKind::full;
  }
  DSA_TRY(parse_swiglu(config, out));
  DSA_TRY(parse_deepseek_experts(config, out));
  DSA_TRY(parse_quantization(config, out));
  out.indexer.fp8_keys = out.quantization.fp8;
  DSA_TRY(check_indexer(config, out));
  DSA_TRY(parse_end_tokens(config, out));
  return Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  DSA_TRY(load_ends(loader, c, out));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l)
    DSA_TRY(load_layer(loader, concat("model.layers.", l, "."), c, c.layers[l], "mlp.", kProjExperts,
                       out.layers[l]));
  return Status::ok();
}

}  // namespace

const Family& deepseek_v32_family() {
  static const Family& family = *new Family{"deepseek_v32", {"DeepseekV32ForCausalLM"}, parse, nullptr, load};
  return family;
}

}  // namespace dsa
