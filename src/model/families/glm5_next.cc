// model/families/glm5_next.cc: GLM-5.3-Flash: KDA layers between latent attention layers that select pools of positions,
// no positions, residuals as hyper-connections.
#include <cmath>

#include "kernels/common/paged.h"
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

constexpr double kSafeGateBound = -5;  // of a config that asks for the safe gate without a number
constexpr double kSwigluLimit = 10;    // of the config class
constexpr int64_t kIndexGroup = 16;    // the same; the published files say 4

Status parse_hyper(const JsonFields& text, ModelConfig& out) {
  out.residual = ResidualKind::hyper;
  DSA_TRY(expect_boolean(text, "mhc", true, true));
  DSA_ASSIGN(out.hyper.streams, text.integer_or("hc_mult", 4, 1, kHyperStreamsMax));
  DSA_ASSIGN(out.hyper.iterations, text.integer_or("hc_sinkhorn_iters", 20, 1, 1000));
  DSA_ASSIGN(const double eps, number_within(text, "hc_eps", 0, 1, 1e-6));
  out.hyper.eps = float(eps);
  return Status::ok();
}

// linear_attn_config says which layers are KDA; where layer_types is there too, they must agree.
Status parse_layers(const JsonFields& text, ModelConfig& out) {
  DSA_TRY(parse_linear_attention(text, 0, out));
  DSA_ASSIGN(const JsonFields linear, text.object("linear_attn_config"));
  if (!out.kda.low_rank_output)
    return error(Code::unsupported, linear.where(),
                 ": 'use_full_rank_gate' is true, expected false for this family");
  DSA_ASSIGN(const bool safe, linear.boolean_or("safe_gate", true));
  if (linear.has("gate_lower_bound")) {
    DSA_TRY(expect_boolean(linear, "safe_gate", true, true));  // a bound is what makes it safe
  } else {
    out.kda.gate_lower_bound = safe ? float(kSafeGateBound) : 0;
  }
  if (!text.has("layer_types")) return Status::ok();
  DSA_ASSIGN(const std::vector<std::string> types, text.strings("layer_types"));
  if (types.size() != out.layers.size())
    return error(Code::model, text.where(), ": 'layer_types' names ", types.size(), " layers, expected ",
                 out.layers.size());
  for (size_t l = 0; l < types.size(); ++l) {
    const bool kda = types[l] == "linear_attention";
    if (!kda && types[l] != "deepseek_sparse_attention" && types[l] != "full_attention")
      return error(Code::model, text.where(), ": 'layer_types' has ", in_quotes(types[l]), " at ", l,
                   ", expected 'linear_attention' or 'deepseek_sparse_attention'");
    if (kda != (out.layers[l].attention == AttentionKind::kda))
      return error(Code::model, text.where(), ": 'layer_types' has '", types[l], "' at ", l,
                   ", 'linear_attn_config' says otherwise");
  }
  return Status::ok();
}

// Pools, and who selects: a shared layer takes the set of the layer right before it.
Status parse_pools(const JsonFields& text, ModelConfig& out) {
  IndexerConfig& indexer = out.indexer;
  DSA_TRY(parse_indexer(text, out));
  DSA_ASSIGN(indexer.group, text.integer_or("index_kpool", kIndexGroup, 1, kMaxDim));
  if (kPageSize % indexer.group != 0)
    return error(Code::unsupported, text.where(), ": 'index_kpool' is ", indexer.group,
                 ", expected a divisor of ", kPageSize);
  if (indexer.top_k % indexer.group != 0)
    return error(Code::model, text.where(), ": 'index_topk' is ", indexer.top_k,
                 ", expected a multiple of the ", indexer.group, " of 'index_kpool'");
  DSA_ASSIGN(indexer.tail, text.boolean_or("index_kpool_always_select_tail", true));
  DSA_TRY(expect_boolean(text, "index_kpool_compress", true, true));
  DSA_ASSIGN(const bool rope_pairs, text.boolean_or("indexer_rope_interleave", true));
  (void)rope_pairs;  // no lane turns
  indexer.norm_bias = true;
  DSA_TRY(parse_index_sharing(text, out));
  for (size_t l = 0; l < out.layers.size(); ++l) {
    LayerConfig& layer = out.layers[l];
    if (layer.attention == AttentionKind::kda) {
      layer.indexer = IndexerKind::none;
    } else if (layer.indexer == IndexerKind::shared && out.layers[l - 1].indexer == IndexerKind::none) {
      return error(Code::model, text.where(), ": layer ", l,
                   " shares the selection of the layer before it, which has none");
    }
  }
  return Status::ok();
}

Status parse_text(const JsonFields& text, ModelConfig& out) {
  DSA_TRY(parse_decoder(text, "max_position_embeddings", out));
  DSA_TRY(parse_hyper(text, out));
  DSA_TRY(parse_layers(text, out));
  DSA_TRY(parse_latent_attention(text, 0, false, out));
  if (out.latent.rope_dim != 0)
    return error(Code::unsupported, text.where(), ": 'qk_rope_head_dim' is ", out.latent.rope_dim,
                 ", expected 0 for this family");
  DSA_TRY(expect_boolean(text, "mla_use_nope", true, true));
  out.latent.norm_eps = out.norm_eps;  // unlike the relatives
  DSA_TRY(parse_pools(text, out));
  DSA_TRY(parse_swiglu(text, out));
  if (!text.has("swiglu_limit")) out.mlp.activation.limit = float(kSwigluLimit);
  return parse_deepseek_experts(text, out);
}

// The keys of the text part, nested or not.
// clang-format off
constexpr std::initializer_list<const char*> kTextKeys = {
    "attention_bias", "first_k_dense_replace", "hc_eps", "hc_mult", "hc_sinkhorn_iters", "head_dim",
    "hidden_act", "hidden_size", "index_head_dim", "index_kpool", "index_kpool_compress",
    "index_kpool_always_select_tail", "index_n_heads", "index_topk", "index_share_for_mtp_iteration",
    "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset", "indexer_types", "intermediate_size",
    "indexer_rope_interleave", "kv_lora_rank", "layer_types", "linear_attn_config", "mhc", "mla_use_nope",
    "max_position_embeddings", "mlp_layer_types", "moe_intermediate_size", "moe_layer_freq",
    "moe_router_dtype", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob",
    "num_attention_heads", "num_experts_per_tok", "num_hidden_layers", "num_nextn_predict_layers",
    "num_key_value_heads", "q_lora_rank", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
    "quantization_config", "rms_norm_eps", "routed_scaling_factor", "scoring_func", "swiglu_limit",
    "tie_word_embeddings", "topk_group", "topk_method", "v_head_dim", "vocab_size", "linear_num_heads",
    "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound"};
// clang-format on

Status parse(const JsonFields& config, ModelConfig& out) {
  const bool nested = config.has("text_config");
  DSA_ASSIGN(const JsonFields text, nested ? config.object("text_config") : Result<JsonFields>(config));
  if (nested)
    DSA_TRY(refuse_unknown_keys(
        config, {"image_end_token_id", "image_start_token_id", "image_token_id", "quantization_config",
                 "text_config", "tie_word_embeddings", "video_end_token_id", "video_start_token_id",
                 "video_token_id", "vision_config"}));
  DSA_TRY(refuse_unknown_keys(text, kTextKeys));
  for (const char* key : {"image_token_id", "image_start_token_id", "image_end_token_id", "video_token_id",
                          "video_start_token_id", "video_end_token_id"})
    if (config.has(key)) DSA_TRY(config.integer(key, 0, kMaxDim).status());
  DSA_TRY(expect_boolean(config, "tie_word_embeddings", false, false));
  DSA_TRY(parse_text(text, out));
  for (const JsonFields& fields : {config, text}) {
    DSA_TRY(parse_quantization(fields, out));
    DSA_TRY(parse_end_tokens(fields, out));
  }
  return nested && config.has("vision_config") ? parse_glm_vision(config, out) : Status::ok();
}

Status load_hyper(WeightLoader& loader, const std::string& name, const ModelConfig& c, HyperWeights& out) {
  const int64_t mixes = c.hyper.mixes();
  DSA_TRY(loader.matrix(name + "_fn", {mixes, int64_t(c.hyper.streams) * c.hidden}, out.fn));
  DSA_TRY(loader.vector(name + "_base", {mixes}, out.base));
  return loader.vector(name + "_scale", {3}, out.scale);
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  // A file with the text alone may do without the part that tells it from pictures.
  const std::string prefix = loader.has("model.language_model.norm.weight", true) || c.vision.layers > 0
                                 ? "model.language_model."
                                 : "model.";
  DSA_TRY(loader.plain_matrix(prefix + "embed_tokens.weight", {c.vocab, c.hidden}, out.embedding));
  DSA_TRY(loader.matrix("lm_head.weight", {c.vocab, c.hidden}, out.head));
  DSA_TRY(loader.vector(prefix + "norm.weight", {c.hidden}, out.final_norm));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const std::string name = concat(prefix, "layers.", l, ".");
    LayerWeights& w = out.layers[l];
    DSA_TRY(load_layer(loader, name, c, c.layers[l], kProjExperts, w));
    DSA_TRY(load_hyper(loader, name + "hc_attn", c, w.attn_hyper));
    DSA_TRY(load_hyper(loader, name + "hc_ffn", c, w.mlp_hyper));
    if (w.indexer != IndexerKind::full) continue;
    const std::string indexer = name + "self_attn.indexer.index_kpool_compress_";
    DSA_TRY(loader.matrix(indexer + "gate", {c.indexer.dim, c.hidden}, w.latent.indexer.pool_gate));
    DSA_TRY(loader.vector(indexer + "ape", {c.indexer.group, c.indexer.dim}, w.latent.indexer.pool_places));
  }
  return c.vision.layers > 0 ? load_glm_vision(loader, c, out.vision) : Status::ok();
}

}  // namespace

const Family& glm5_next_family() {
  static const Family& family = *new Family{
      "glm5_next", {"Glm5NextForConditionalGeneration"}, parse, parse_glm_preprocessor, load, &kProjExperts,
      true};
  return family;
}

}  // namespace dsa
