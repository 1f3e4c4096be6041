// model/families/gpt_oss.cc: gpt-oss: grouped attention with sinks, every other layer through a window, and experts with
// biases in every layer.
#include <cmath>

#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

constexpr float kAlpha = 1.702f;  // of the activation; no file says it

Status parse_attention(const JsonFields& config, ModelConfig& out) {
  GroupedAttentionConfig& attention = out.grouped;
  DSA_ASSIGN(attention.heads, config.integer("num_attention_heads", 1, 1 << 16));
  DSA_ASSIGN(attention.kv_heads, config.integer("num_key_value_heads", 1, attention.heads));
  if (attention.heads % attention.kv_heads != 0)
    return error(Code::model, config.where(), ": 'num_key_value_heads' is ", attention.kv_heads,
                 ", which does not divide ", attention.heads, " 'num_attention_heads'");
  DSA_ASSIGN(attention.head_dim, config.integer("head_dim", 1, kRopeDimMax));
  attention.scale = 1 / std::sqrt(float(attention.head_dim));
  DSA_TRY(expect_boolean(config, "attention_bias", true, true));
  DSA_TRY(parse_rope(config, "head_dim", attention.head_dim, out.rope, attention.scale));
  if (config.has("initial_context_length") && config.has("rope_scaling")) {
    DSA_ASSIGN(const JsonFields scaling, config.object("rope_scaling"));
    DSA_ASSIGN(const int64_t context,
               scaling.integer_or("original_max_position_embeddings", 1, 1, INT32_MAX));
    DSA_TRY(expect_equal(config, "initial_context_length", context, "'original_max_position_embeddings'"));
  }
  DSA_ASSIGN(attention.window, config.integer("sliding_window", 1, INT32_MAX));

  std::vector<std::string> types;
  if (config.has("layer_types")) {
    DSA_ASSIGN(types, config.strings("layer_types"));
  } else {
    for (size_t l = 0; l < out.layers.size(); ++l)
      types.push_back(l % 2 == 0 ? "sliding_attention" : "full_attention");
  }
  if (types.size() != out.layers.size())
    return error(Code::model, config.where(), ": 'layer_types' names ", types.size(), " layers, expected ",
                 out.layers.size());
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] != "sliding_attention" && types[l] != "full_attention")
      return error(Code::model, config.where(), ": 'layer_types' has ", in_quotes(types[l]), " at ", l,
                   ", expected 'sliding_attention' or 'full_attention'");
    out.layers[l].attention = AttentionKind::grouped;
    out.layers[l].window = types[l] == "sliding_attention";
  }
  return Status::ok();
}

Status parse_experts(const JsonFields& config, ModelConfig& out) {
  MoeConfig& moe = out.moe;
  DSA_ASSIGN(moe.experts, config.integer("num_local_experts", 1, 1 << 16));
  DSA_ASSIGN(moe.top_k, config.integer("num_experts_per_tok", 1, moe.experts));
  DSA_ASSIGN(const int64_t again, config.integer_or("experts_per_token", moe.top_k, 1, moe.experts));
  if (again != moe.top_k)
    return error(Code::model, config.where(), ": 'experts_per_token' is ", again, ", expected ", moe.top_k,
                 " like 'num_experts_per_tok'");
  DSA_ASSIGN(moe.expert_dim, config.integer("intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(const double limit, number_within(config, "swiglu_limit", 0, 1e6, 7));
  DSA_ASSIGN(const std::string act, config.string("hidden_act"));
  DSA_TRY(expect_string(config, "hidden_act", "silu"));
  moe.biased = true;
  moe.alpha = kAlpha;
  moe.limit = float(limit);
  for (LayerConfig& layer : out.layers) layer.moe = true;
  return Status::ok();
}

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_TRY(refuse_unknown_keys(config, {"attention_bias",
                                       "experts_per_token",
                                       "head_dim",
                                       "hidden_act",
                                       "hidden_size",
                                       "intermediate_size",
                                       "layer_types",
                                       "max_position_embeddings",
                                       "num_attention_heads",
                                       "num_hidden_layers",
                                       "num_experts_per_tok",
                                       "num_key_value_heads",
                                       "num_local_experts",
                                       "rms_norm_eps",
                                       "rope_parameters",
                                       "initial_context_length",
                                       "rope_scaling",
                                       "rope_theta",
                                       "sliding_window",
                                       "quantization_config",
                                       "swiglu_limit",
                                       "vocab_size",
                                       "tie_word_embeddings"}));
  out.residual = ResidualKind::plain;
  DSA_TRY(parse_decoder(config, "max_position_embeddings", out));
  DSA_TRY(parse_attention(config, out));
  DSA_TRY(parse_experts(config, out));
  DSA_TRY(parse_quantization(config, out));
  if (out.quantization.fp8)
    return error(Code::unsupported, config.where(),
                 ": quantization_config: 'quant_method' is 'fp8', expected 'mxfp4'");
  DSA_TRY(parse_end_tokens(config, out));
  return Status::ok();
}

// A matrix and its bias below `name`.
Status load_linear(WeightLoader& loader, const std::string& name, int64_t out_dim, int64_t in_dim,
                   Tensor& weight, Tensor& bias) {
  DSA_TRY(loader.matrix(name + ".weight", {out_dim, in_dim}, weight));
  return loader.vector(name + ".bias", {out_dim}, bias);
}

Status load_attention(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                      GroupedAttentionWeights& out) {
  const int64_t queries = int64_t(c.grouped.heads) * c.grouped.head_dim, kv = c.grouped.kv_dim();
  DSA_TRY(load_linear(loader, name + "q_proj", queries, c.hidden, out.q, out.q_bias));
  DSA_TRY(load_linear(loader, name + "k_proj", kv, c.hidden, out.k, out.k_bias));
  DSA_TRY(load_linear(loader, name + "v_proj", kv, c.hidden, out.v, out.v_bias));
  DSA_TRY(load_linear(loader, name + "o_proj", c.hidden, queries, out.o, out.o_bias));
  return loader.vector(name + "sinks", {c.grouped.heads}, out.sinks);
}

Status load_moe(WeightLoader& loader, const std::string& name, const ModelConfig& c, MoeWeights& out) {
  const int64_t experts = c.moe.experts, dim = c.moe.expert_dim;
  DSA_TRY(load_linear(loader, name + "router", experts, c.hidden, out.router, out.router_logit_bias));
  DSA_TRY(loader.stacked_experts(name + "experts.gate_up_proj", experts, 2 * dim, c.hidden,
                                 &ExpertWeights::gate, out.experts));
  DSA_TRY(loader.stacked_experts(name + "experts.down_proj", experts, c.hidden, dim, &ExpertWeights::down,
                                 out.experts));
  DSA_TRY(loader.plain_matrix(name + "experts.gate_up_proj_bias", {experts, 2 * dim}, out.gate_up_bias));
  return loader.plain_matrix(name + "experts.down_proj_bias", {experts, c.hidden}, out.down_bias);
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  DSA_TRY(load_ends(loader, c, out));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const std::string layer = concat("model.layers.", l, ".");
    LayerWeights& w = out.layers[l];
    w.attention = AttentionKind::grouped;
    w.window = c.layers[l].window;
    w.is_moe = true;
    DSA_TRY(loader.vector(layer + "input_layernorm.weight", {c.hidden}, w.attn_norm));
    DSA_TRY(loader.vector(layer + "post_attention_layernorm.weight", {c.hidden}, w.mlp_norm));
    DSA_TRY(load_attention(loader, layer + "self_attn.", c, w.grouped));
    DSA_TRY(load_moe(loader, layer + "mlp.", c, w.moe));
  }
  return Status::ok();
}

}  // namespace

const Family& gpt_oss_family() {
  static const Family& family =
      *new Family{"gpt_oss", {"GptOssForCausalLM"}, parse, nullptr, load, &kStackedExperts};
  return family;
}

}  // namespace dsa
