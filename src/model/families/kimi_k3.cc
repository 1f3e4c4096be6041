// model/families/kimi_k3.cc: Kimi K3 and K3.1 (K3 with an indexer on its latent attention layers).
#include <algorithm>
#include <cmath>

#include "model/families/families.h"

namespace dsa {
namespace {

constexpr float kLatentNormEps =
    1e-6f;  // the vendor's modelling code builds these norms without an eps argument
constexpr float kIndexKeyNormEps = 1e-6f;  // DeepSeek-V3.2's definition of the indexer
constexpr int64_t kMaxDim = 1 << 24;       // no dimension of any model comes near

Status parse_kda(const JsonFields& text, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields linear, text.object("linear_attn_config"));
  DSA_ASSIGN(out.kda.heads, linear.integer("num_heads", 1, kMaxDim));
  DSA_ASSIGN(out.kda.head_dim, linear.integer("head_dim", 1, kMaxDim));
  DSA_ASSIGN(out.kda.conv_width, linear.integer("short_conv_kernel_size", 2, 8));
  DSA_ASSIGN(const double bound, linear.number("gate_lower_bound"));
  // The chunked form multiplies decays of 16 tokens in f32: 16 * 5 = 80 < 88.7 = log of the largest number.
  if (!(bound < 0 && bound >= -5.0625))
    return error(Code::unsupported, linear.where(), ": 'gate_lower_bound' is ", bound,
                 ", supported are -5.0625 to below 0");
  out.kda.gate_lower_bound = float(bound);
  DSA_ASSIGN(const bool full_rank, linear.boolean_or("use_full_rank_gate", false));
  if (!full_rank)
    return error(Code::unsupported, linear.where(),
                 ": 'use_full_rank_gate' is false, expected true for this family");

  // The two lists are disjoint and cover every layer.
  std::vector<bool> is_kda(out.layers.size()), is_latent(out.layers.size());
  for (auto& [key, flags] : {std::pair{"kda_layers", &is_kda}, std::pair{"full_attn_layers", &is_latent}}) {
    DSA_ASSIGN(const std::vector<int64_t> list, linear.integers(key, 1, int64_t(out.layers.size())));
    for (int64_t layer : list) (*flags)[size_t(layer - 1)] = true;
  }
  for (size_t l = 0; l < out.layers.size(); ++l) {
    if (is_kda[l] == is_latent[l])
      return error(Code::model, linear.where(), ": layer ", l + 1,
                   is_kda[l] ? " is in both" : " is in neither", " of 'kda_layers' and 'full_attn_layers'");
    out.layers[l].attention = is_kda[l] ? AttentionKind::kda : AttentionKind::latent;
  }
  return Status::ok();
}

Status parse_latent_attention(const JsonFields& text, ModelConfig& out) {
  LatentAttentionConfig& latent = out.latent;
  DSA_ASSIGN(latent.heads, text.integer("num_attention_heads", 1, kMaxDim));
  DSA_ASSIGN(const int64_t kv_heads, text.integer("num_key_value_heads", 1, kMaxDim));
  if (kv_heads != latent.heads)
    return error(Code::model, text.where(), ": 'num_key_value_heads' is ", kv_heads, ", expected ",
                 latent.heads, " like 'num_attention_heads'");
  DSA_ASSIGN(latent.q_rank, text.integer("q_lora_rank", 1, kMaxDim));
  DSA_ASSIGN(latent.latent_dim, text.integer("kv_lora_rank", 1, kMaxDim));
  DSA_ASSIGN(latent.nope_dim, text.integer("qk_nope_head_dim", 1, kMaxDim));
  DSA_ASSIGN(latent.rope_dim, text.integer("qk_rope_head_dim", 1, kMaxDim));
  DSA_ASSIGN(latent.v_dim, text.integer("v_head_dim", 1, kMaxDim));
  DSA_ASSIGN(const bool no_rope, text.boolean_or("mla_use_nope", false));
  if (!no_rope)
    return error(Code::unsupported, text.where(), ": 'mla_use_nope' is false, expected true for this family");
  DSA_ASSIGN(latent.output_gate, text.boolean_or("mla_use_output_gate", false));
  if (!latent.output_gate)
    return error(Code::unsupported, text.where(),
                 ": 'mla_use_output_gate' is false, expected true for this family");
  latent.norm_eps = kLatentNormEps;
  latent.scale = 1.f / std::sqrt(float(latent.nope_dim + latent.rope_dim));
  return Status::ok();
}

Status parse_indexer(const JsonFields& text, ModelConfig& out) {
  if (!text.has("dsa_config")) return Status::ok();
  DSA_ASSIGN(const JsonFields dsa, text.object("dsa_config"));
  DSA_ASSIGN(out.indexer.heads, dsa.integer("index_n_heads", 1, kMaxDim));
  DSA_ASSIGN(out.indexer.dim, dsa.integer("index_head_dim", 1, kMaxDim));
  // No published file shows the spelling of this key; these are the ones seen in relatives.
  const char* top_k_key = "index_topk";
  for (const char* spelling : {"index_top_k", "indexer_topk", "topk", "top_k"})
    if (!dsa.has(top_k_key) && dsa.has(spelling)) top_k_key = spelling;
  DSA_ASSIGN(out.indexer.top_k, dsa.integer(top_k_key, 1, kMaxDim));
  out.indexer.norm_eps = kIndexKeyNormEps;
  DSA_ASSIGN(const std::vector<int64_t> list, dsa.integers("dsa_layers", 1, int64_t(out.layers.size())));
  if (list.empty()) return error(Code::model, dsa.where(), ": 'dsa_layers' is empty");
  for (int64_t layer : list) {
    LayerConfig& config = out.layers[size_t(layer - 1)];
    if (config.attention != AttentionKind::latent)
      return error(Code::model, dsa.where(), ": 'dsa_layers' names layer ", layer, ", which is a KDA layer");
    config.indexer = true;
  }
  return Status::ok();
}

Status parse_feed_forward(const JsonFields& text, ModelConfig& out) {
  DSA_ASSIGN(const std::string act, text.string("hidden_act"));
  if (act != "situ")
    return error(Code::unsupported, text.where(), ": 'hidden_act' is '", act,
                 "', expected 'situ' for this family");
  DSA_ASSIGN(const double beta, text.number_or("activation_situ_beta", 1.0));
  DSA_ASSIGN(const double linear_beta, text.number_or("activation_situ_linear_beta", 0.0));
  if (!(beta > 0) || !(linear_beta >= 0))
    return error(Code::model, text.where(), ": 'activation_situ_beta' is ", beta,
                 " and 'activation_situ_linear_beta' is ", linear_beta, ", expected positive numbers");
  out.mlp.beta = float(beta);
  out.mlp.linear_beta = float(linear_beta);
  DSA_ASSIGN(out.mlp.dim, text.integer("intermediate_size", 1, kMaxDim));

  MoeConfig& moe = out.moe;
  DSA_ASSIGN(moe.experts, text.integer("num_experts", 1, 1 << 16));
  DSA_ASSIGN(moe.top_k, text.integer("num_experts_per_token", 1, moe.experts));
  DSA_ASSIGN(moe.expert_dim, text.integer("moe_intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(moe.latent_dim, text.integer("routed_expert_hidden_size", 1, kMaxDim));
  DSA_ASSIGN(const int64_t shared, text.integer("num_shared_experts", 1, 1024));
  moe.shared_dim = int(shared) * moe.expert_dim;
  if (!text.has("latent_moe_use_norm"))  // public config classes default it to false and lose the norm
    return error(Code::model, text.where(), ": 'latent_moe_use_norm' is missing");
  DSA_ASSIGN(moe.latent_norm, text.boolean_or("latent_moe_use_norm", true));
  DSA_ASSIGN(moe.renormalize, text.boolean_or("moe_renormalize", true));
  DSA_ASSIGN(const double scale, text.number("routed_scaling_factor"));
  moe.scale = float(scale);
  DSA_ASSIGN(const std::string router, text.string("moe_router_activation_func"));
  if (router != "sigmoid")
    return error(Code::unsupported, text.where(), ": 'moe_router_activation_func' is '", router,
                 "', expected 'sigmoid'");
  DSA_ASSIGN(const int64_t groups, text.integer_or("num_expert_group", 1, 1, moe.experts));
  if (groups != 1)
    return error(Code::unsupported, text.where(), ": 'num_expert_group' is ", groups,
                 ", expected 1 for this family");

  DSA_ASSIGN(const int64_t dense, text.integer("first_k_dense_replace", 0, int64_t(out.layers.size())));
  DSA_ASSIGN(const int64_t frequency, text.integer_or("moe_layer_freq", 1, 1, 1));
  (void)frequency;
  for (size_t l = size_t(dense); l < out.layers.size(); ++l) out.layers[l].moe = true;
  return Status::ok();
}

void count_parameters(ModelConfig& c) {
  const uint64_t hidden = uint64_t(c.hidden), kda = uint64_t(c.kda.heads) * uint64_t(c.kda.head_dim);
  const LatentAttentionConfig& a = c.latent;
  const uint64_t kda_layer = 5 * kda * hidden + 3 * kda * uint64_t(c.kda.conv_width) +
                             uint64_t(c.kda.head_dim) * (hidden + kda + 1) + kda +
                             uint64_t(c.kda.heads) * hidden + uint64_t(c.kda.heads);
  const uint64_t values = uint64_t(a.heads) * uint64_t(a.v_dim);
  const uint64_t latent_layer = uint64_t(a.q_rank) * (hidden + 1) +
                                uint64_t(a.heads) * uint64_t(a.nope_dim + a.rope_dim) * uint64_t(a.q_rank) +
                                uint64_t(a.latent_dim + a.rope_dim) * hidden + uint64_t(a.latent_dim) +
                                uint64_t(a.heads) * uint64_t(a.nope_dim + a.v_dim) * uint64_t(a.latent_dim) +
                                2 * values * hidden;
  const uint64_t indexer = uint64_t(c.indexer.heads) * uint64_t(c.indexer.dim) * uint64_t(a.q_rank) +
                           uint64_t(c.indexer.dim) * (hidden + 2) + uint64_t(c.indexer.heads) * hidden;
  const uint64_t expert = 3 * uint64_t(c.moe.expert_dim) * uint64_t(c.moe.latent_dim);
  const uint64_t moe_rest = uint64_t(c.moe.experts) * (hidden + 1) + 2 * uint64_t(c.moe.latent_dim) * hidden +
                            uint64_t(c.moe.latent_dim) + 3 * uint64_t(c.moe.shared_dim) * hidden;
  const uint64_t embedding = uint64_t(c.vocab) * hidden;
  uint64_t fixed = 2 * embedding + 3 * hidden, routed = 0, used = 0;
  for (const LayerConfig& layer : c.layers) {
    fixed += 6 * hidden + (layer.attention == AttentionKind::kda ? kda_layer : latent_layer);
    if (layer.indexer) fixed += indexer;
    fixed += layer.moe ? moe_rest : 3 * uint64_t(c.mlp.dim) * hidden;
    if (layer.moe) {
      routed += uint64_t(c.moe.experts) * expert;
      used += uint64_t(c.moe.top_k) * expert;
    }
  }
  c.parameters = fixed + routed;
  c.active_parameters = fixed - embedding + used;
}

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields text, config.object("text_config"));
  DSA_ASSIGN(out.vocab, text.integer("vocab_size", 1, kMaxDim));
  DSA_ASSIGN(out.hidden, text.integer("hidden_size", 1, kMaxDim));
  DSA_ASSIGN(out.max_context, text.integer("max_position_embeddings", 1, INT32_MAX));
  DSA_ASSIGN(const double eps, text.number("rms_norm_eps"));
  if (!(eps > 0))
    return error(Code::model, text.where(), ": 'rms_norm_eps' is ", eps, ", expected a positive number");
  out.norm_eps = float(eps);
  DSA_ASSIGN(const int64_t layers, text.integer("num_hidden_layers", 1, 4096));
  out.layers.resize(size_t(layers));
  DSA_ASSIGN(out.residual_block, text.integer("attn_res_block_size", 1, 4096));
  out.residual = ResidualKind::attn_residual;
  if ((layers + out.residual_block - 1) / out.residual_block + 1 > 64)
    return error(Code::unsupported, text.where(), ": 'attn_res_block_size' ", out.residual_block,
                 " gives more than 64 sources");
  DSA_TRY(parse_kda(text, out));
  DSA_TRY(parse_latent_attention(text, out));
  DSA_TRY(parse_indexer(text, out));
  DSA_TRY(parse_feed_forward(text, out));
  DSA_ASSIGN(const bool tied, text.boolean_or("tie_word_embeddings", false));
  if (tied)
    return error(Code::unsupported, text.where(),
                 ": 'tie_word_embeddings' is true, expected false for this family");
  for (const JsonFields& fields : {config, text})
    if (fields.has("eos_token_id")) {
      DSA_ASSIGN(const int64_t eos, fields.integer("eos_token_id", 0, out.vocab - 1));
      if (std::find(out.eos_tokens.begin(), out.eos_tokens.end(), int32_t(eos)) == out.eos_tokens.end())
        out.eos_tokens.push_back(int32_t(eos));
    }
  out.tensor_prefix = "language_model.";
  count_parameters(out);
  return config.has("vision_config") ? parse_kimi_vision(config, out) : Status::ok();
}

Status load_kda(WeightLoader& loader, const std::string& layer, const ModelConfig& c, KdaWeights& out) {
  const std::string attn = layer + "self_attn.";
  const int64_t channels = int64_t(c.kda.heads) * c.kda.head_dim, width = c.kda.conv_width;
  DSA_TRY(loader.matrix(attn + "q_proj.weight", {channels, c.hidden}, out.q));
  DSA_TRY(loader.matrix(attn + "k_proj.weight", {channels, c.hidden}, out.k));
  DSA_TRY(loader.matrix(attn + "v_proj.weight", {channels, c.hidden}, out.v));
  float* conv = loader.own(size_t(3 * channels * width));
  out.conv = Tensor(conv, DType::f32, {3 * channels, width});
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    Tensor filters;
    DSA_TRY(loader.vector(attn + name, {channels, width}, filters));
    conv = std::copy(filters.f32(), filters.f32() + filters.count(), conv);
  }
  DSA_TRY(loader.matrix(attn + "f_a_proj.weight", {c.kda.head_dim, c.hidden}, out.f_a));
  DSA_TRY(loader.matrix(attn + "f_b_proj.weight", {channels, c.kda.head_dim}, out.f_b));
  DSA_TRY(loader.vector(attn + "A_log", {c.kda.heads}, out.a_log, true));  // padded in published files
  DSA_TRY(loader.vector(attn + "dt_bias", {channels}, out.dt_bias));
  DSA_TRY(loader.matrix(attn + "b_proj.weight", {c.kda.heads, c.hidden}, out.b));
  DSA_TRY(loader.matrix(attn + "g_proj.weight", {channels, c.hidden}, out.gate));
  DSA_TRY(loader.vector(attn + "o_norm.weight", {c.kda.head_dim}, out.o_norm));
  return loader.matrix(attn + "o_proj.weight", {c.hidden, channels}, out.o);
}

Status load_indexer(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                    IndexerWeights& out) {
  DSA_TRY(loader.matrix(name + "wq_b.weight", {int64_t(c.indexer.heads) * c.indexer.dim, c.latent.q_rank},
                        out.q));
  DSA_TRY(loader.matrix(name + "wk.weight", {c.indexer.dim, c.hidden}, out.k));
  DSA_TRY(loader.vector(name + "k_norm.weight", {c.indexer.dim}, out.k_norm));
  if (loader.has(name + "k_norm.bias"))
    DSA_TRY(loader.vector(name + "k_norm.bias", {c.indexer.dim}, out.k_norm_bias));
  return loader.matrix(name + "weights_proj.weight", {c.indexer.heads, c.hidden}, out.head_weights);
}

Status load_latent_attention(WeightLoader& loader, const std::string& layer, const ModelConfig& c,
                             bool sparse, LatentAttentionWeights& out) {
  const std::string attn = layer + "self_attn.";
  const LatentAttentionConfig& a = c.latent;
  const int64_t values = int64_t(a.heads) * a.v_dim;
  DSA_TRY(loader.matrix(attn + "q_a_proj.weight", {a.q_rank, c.hidden}, out.q_down));
  DSA_TRY(loader.vector(attn + "q_a_layernorm.weight", {a.q_rank}, out.q_norm));
  DSA_TRY(loader.matrix(attn + "q_b_proj.weight", {int64_t(a.heads) * (a.nope_dim + a.rope_dim), a.q_rank},
                        out.q_up));
  DSA_TRY(
      loader.matrix(attn + "kv_a_proj_with_mqa.weight", {a.latent_dim + a.rope_dim, c.hidden}, out.kv_down));
  DSA_TRY(loader.vector(attn + "kv_a_layernorm.weight", {a.latent_dim}, out.kv_norm));

  // Per head: the rows that make keys, then the rows that make values.
  Tensor kv_up;
  const int64_t rows = a.nope_dim + a.v_dim;
  DSA_TRY(loader.matrix(attn + "kv_b_proj.weight", {a.heads * rows, a.latent_dim}, kv_up));
  kv_up = kv_up.reshape({a.heads, rows, a.latent_dim});
  out.k_up = out.v_up = kv_up;
  out.k_up.dim[1] = a.nope_dim;
  out.v_up.dim[1] = a.v_dim;
  out.v_up.data = kv_up.as<char>() + size_t(a.nope_dim) * size_t(a.latent_dim) * dtype_bytes(kv_up.dtype);

  DSA_TRY(loader.matrix(attn + "g_proj.weight", {values, c.hidden}, out.gate));
  DSA_TRY(loader.matrix(attn + "o_proj.weight", {c.hidden, values}, out.o));
  const bool has_indexer = loader.has(attn + "indexer.wk.weight");
  if (has_indexer != sparse)
    return error(Code::model, "'", c.tensor_prefix, attn, "indexer.wk.weight' is ",
                 sparse ? "missing, but 'dsa_layers' names its layer"
                        : "there, but 'dsa_layers' does not name its layer");
  return sparse ? load_indexer(loader, attn + "indexer.", c, out.indexer) : Status::ok();
}

Status load_mlp(WeightLoader& loader, const std::string& name, int64_t hidden, int64_t dim, MlpWeights& out) {
  DSA_TRY(loader.matrix(name + "gate_proj.weight", {dim, hidden}, out.gate));
  DSA_TRY(loader.matrix(name + "up_proj.weight", {dim, hidden}, out.up));
  return loader.matrix(name + "down_proj.weight", {hidden, dim}, out.down);
}

Status load_moe(WeightLoader& loader, const std::string& name, const ModelConfig& c, MoeWeights& out) {
  const MoeConfig& moe = c.moe;
  DSA_TRY(loader.matrix(name + "gate.weight", {moe.experts, c.hidden}, out.router));
  DSA_TRY(loader.vector(name + "gate.e_score_correction_bias", {moe.experts}, out.router_bias));
  DSA_TRY(
      loader.matrix(name + "routed_expert_down_proj.weight", {moe.latent_dim, c.hidden}, out.latent_down));
  DSA_TRY(loader.matrix(name + "routed_expert_up_proj.weight", {c.hidden, moe.latent_dim}, out.latent_up));
  if (moe.latent_norm)
    DSA_TRY(loader.vector(name + "routed_expert_norm.weight", {moe.latent_dim}, out.latent_norm));
  DSA_TRY(load_mlp(loader, name + "shared_experts.", c.hidden, moe.shared_dim, out.shared));

  // The tensors that are there decide the format: the quantisation config's ignore list is incomplete.
  out.mxfp4 = loader.has(name + "experts.0.w1.weight_packed");
  out.experts.resize(size_t(moe.experts));
  for (int64_t e = 0; e < moe.experts; ++e) {
    const std::string expert = concat(name, "experts.", e, ".");
    ExpertWeights& w = out.experts[size_t(e)];
    DType types[3] = {};
    DSA_TRY(loader.expert_matrix(expert + "w1", moe.expert_dim, moe.latent_dim, out.mxfp4, types[0], w.gate));
    DSA_TRY(loader.expert_matrix(expert + "w3", moe.expert_dim, moe.latent_dim, out.mxfp4, types[1], w.up));
    DSA_TRY(loader.expert_matrix(expert + "w2", moe.latent_dim, moe.expert_dim, out.mxfp4, types[2], w.down));
    if (out.mxfp4) continue;
    if (e == 0) out.plain_type = types[0];
    for (DType type : types)
      if (type != out.plain_type)
        return error(Code::model, "'", c.tensor_prefix, expert, "' is ", dtype_name(type),
                     ", the experts before it are ", dtype_name(out.plain_type));
  }
  return Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  const int64_t hidden = c.hidden;
  DSA_TRY(loader.matrix("model.embed_tokens.weight", {c.vocab, hidden}, out.embedding));
  DSA_TRY(loader.matrix("lm_head.weight", {c.vocab, hidden}, out.head));
  DSA_TRY(loader.vector("model.norm.weight", {hidden}, out.final_norm));
  DSA_TRY(loader.product("model.output_attn_res_norm.weight", {hidden}, "model.output_attn_res_proj.weight",
                         {1, hidden}, out.output_mix));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const std::string layer = concat("model.layers.", l, ".");
    LayerWeights& w = out.layers[l];
    w.attention = c.layers[l].attention;
    w.sparse = c.layers[l].indexer;
    w.is_moe = c.layers[l].moe;
    DSA_TRY(loader.vector(layer + "input_layernorm.weight", {hidden}, w.attn_norm));
    DSA_TRY(loader.vector(layer + "post_attention_layernorm.weight", {hidden}, w.mlp_norm));
    DSA_TRY(loader.product(layer + "self_attention_res_norm.weight", {hidden},
                           layer + "self_attention_res_proj.weight", {1, hidden}, w.attn_mix));
    DSA_TRY(loader.product(layer + "mlp_res_norm.weight", {hidden}, layer + "mlp_res_proj.weight",
                           {1, hidden}, w.mlp_mix));
    if (w.attention == AttentionKind::kda)
      DSA_TRY(load_kda(loader, layer, c, w.kda));
    else
      DSA_TRY(load_latent_attention(loader, layer, c, w.sparse, w.latent));
    if (w.is_moe)
      DSA_TRY(load_moe(loader, layer + "block_sparse_moe.", c, w.moe));
    else
      DSA_TRY(load_mlp(loader, layer + "mlp.", hidden, c.mlp.dim, w.mlp));
  }
  return c.vision.layers > 0 ? load_kimi_vision(loader, c, out.vision) : Status::ok();
}

}  // namespace

const Family& kimi_k3_family() {
  static const Family& family =
      *new Family{"kimi_k3",
                  {"KimiK3ForConditionalGeneration", "KimiK31ForConditionalGeneration"},
                  parse,
                  parse_kimi_preprocessor,
                  load};
  return family;
}

}  // namespace dsa
