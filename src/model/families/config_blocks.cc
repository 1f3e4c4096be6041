#include "model/families/config_blocks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace dsa {
namespace {

// Of training, of generation, of the files: nothing that a forward pass reads.
constexpr std::string_view kInertKeys[] = {"_name_or_path",        "architectures",
                                           "attention_dropout",    "auto_map",
                                           "bos_token_id",         "dtype",
                                           "eos_token_id",         "ep_size",
                                           "ignore_index",         "initializer_range",
                                           "model_type",           "pad_token_id",
                                           "pretraining_tp",       "torch_dtype",
                                           "transformers_version", "use_cache",
                                           "aux_loss_alpha",       "seq_aux",
                                           "router_aux_loss_coef", "output_router_logits"};

bool says_off(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value == 0) ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.empty()) || value == "";
}

// Layers from first_k_dense_replace on have experts.
Status parse_dense_layers(const JsonFields& text, ModelConfig& out) {
  DSA_ASSIGN(const int64_t dense, text.integer("first_k_dense_replace", 0, int64_t(out.layers.size())));
  DSA_ASSIGN(const int64_t frequency, text.integer_or("moe_layer_freq", 1, 1, 1));
  (void)frequency;
  for (size_t l = 0; l < out.layers.size(); ++l) out.layers[l].moe = int64_t(l) >= dense;
  return Status::ok();
}

// Both keys of the groups, which must fit the experts.
Status parse_groups(const JsonFields& text, const char* groups_key, ModelConfig& out) {
  MoeConfig& moe = out.moe;
  DSA_ASSIGN(moe.groups, text.integer_or(groups_key, 1, 1, kRouterGroupsMax));
  DSA_ASSIGN(moe.top_groups, text.integer_or("topk_group", 1, 1, moe.groups));
  if (moe.experts % moe.groups != 0)
    return error(Code::model, text.where(), ": '", groups_key, "' is ", moe.groups,
                 ", which does not divide ", moe.experts, " experts");
  if (moe.top_k > moe.experts / moe.groups * moe.top_groups)
    return error(Code::model, text.where(), ": 'topk_group' ", moe.top_groups, " groups of ",
                 moe.experts / moe.groups, " experts are fewer than the ", moe.top_k, " experts of a token");
  return Status::ok();
}

}  // namespace

Status refuse_unknown_keys(const JsonFields& fields, Keys known, Keys also) {
  for (const auto& [key, value] : fields.json().items()) {
    const auto is_key = [&key = key](std::string_view name) { return name == key; };
    if (std::any_of(known.begin(), known.end(), is_key) || std::any_of(also.begin(), also.end(), is_key) ||
        std::any_of(std::begin(kInertKeys), std::end(kInertKeys), is_key) || says_off(value))
      continue;
    return error(Code::unsupported, fields.where(), ": key ", in_quotes(key),
                 " is not known for this family and may change what is computed");
  }
  return Status::ok();
}

Status expect_string(const JsonFields& fields, const char* key, const std::string& expected) {
  DSA_ASSIGN(const std::string found, fields.string_or(key, expected));
  if (found != expected)
    return error(Code::unsupported, fields.where(), ": '", key, "' is ", in_quotes(found), ", expected '",
                 expected, "' for this family");
  return Status::ok();
}

Status expect_boolean(const JsonFields& fields, const char* key, bool otherwise, bool expected) {
  DSA_ASSIGN(const bool found, fields.boolean_or(key, otherwise));
  if (found != expected)
    return error(Code::unsupported, fields.where(), ": '", key, "' is ", found ? "true" : "false",
                 ", expected ", expected ? "true" : "false", " for this family");
  return Status::ok();
}

Status expect_equal(const JsonFields& fields, const char* key, int64_t expected, const char* like) {
  DSA_ASSIGN(const int64_t found, fields.integer(key, 1, kMaxDim));
  if (found == expected) return Status::ok();
  return error(Code::model, fields.where(), ": '", key, "' is ", found, ", expected ", expected, " like ",
               like);
}

Status three_numbers(const JsonFields& fields, const char* key, float (&out)[3]) {
  if (!fields.has(key)) return error(Code::model, fields.where(), ": '", key, "' is missing");
  const Json& list = *fields.json().find(key);
  if (!list.is_array() || list.size() != 3)
    return error(Code::model, fields.where(), ": '", key, "' is not a list of three numbers");
  for (size_t i = 0; i < 3; ++i) {
    if (!list[i].is_number() || !std::isfinite(list[i].get<double>()))
      return error(Code::model, fields.where(), ": '", key, "' is not a list of three numbers");
    out[i] = list[i].get<float>();
  }
  return Status::ok();
}

Result<double> number_within(const JsonFields& fields, const char* key, double low, double high,
                             std::optional<double> otherwise) {
  DSA_ASSIGN(const double value, otherwise ? fields.number_or(key, *otherwise) : fields.number(key));
  if (!(value > low && value <= high) && !(otherwise && value == *otherwise))
    return error(Code::model, fields.where(), ": '", key, "' is ", value, ", expected above ", low,
                 " and up to ", high);
  return value;
}

Status parse_decoder(const JsonFields& text, const char* context_key, ModelConfig& out) {
  DSA_ASSIGN(out.vocab, text.integer("vocab_size", 1, kMaxDim));
  DSA_ASSIGN(out.hidden, text.integer("hidden_size", 1, kMaxDim));
  DSA_ASSIGN(out.max_context, text.integer(context_key, 1, INT32_MAX));
  DSA_ASSIGN(const double eps, number_within(text, "rms_norm_eps", 0, 1));
  out.norm_eps = float(eps);
  DSA_ASSIGN(const int64_t layers, text.integer("num_hidden_layers", 1, 4096));
  out.layers.resize(size_t(layers));
  return expect_boolean(text, "tie_word_embeddings", false, false);
}

Status parse_end_tokens(const JsonFields& fields, ModelConfig& out) {
  if (!fields.has("eos_token_id")) return Status::ok();
  std::vector<int64_t> tokens(1);
  if (fields.json()["eos_token_id"].is_array()) {
    DSA_ASSIGN(tokens, fields.integers("eos_token_id", 0, out.vocab - 1));
    if (tokens.empty()) return error(Code::model, fields.where(), ": 'eos_token_id' is empty");
  } else {
    DSA_ASSIGN(tokens[0], fields.integer("eos_token_id", 0, out.vocab - 1));
  }
  for (const int64_t token : tokens)
    if (std::find(out.eos_tokens.begin(), out.eos_tokens.end(), int32_t(token)) == out.eos_tokens.end())
      out.eos_tokens.push_back(int32_t(token));
  return Status::ok();
}

Status parse_linear_attention(const JsonFields& text, int first, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields linear, text.object("linear_attn_config"));
  DSA_ASSIGN(out.kda.heads, linear.integer("num_heads", 1, kMaxDim));
  DSA_ASSIGN(out.kda.head_dim, linear.integer("head_dim", 1, kMaxDim));
  DSA_ASSIGN(out.kda.conv_width, linear.integer("short_conv_kernel_size", 2, 8));
  if (linear.has("gate_lower_bound")) {
    DSA_ASSIGN(const double bound, linear.number("gate_lower_bound"));
    if (!(bound < 0 && bound >= -double(kKdaMaxDecay)))
      return error(Code::unsupported, linear.where(), ": 'gate_lower_bound' is ", bound, ", supported are ",
                   -double(kKdaMaxDecay), " to below 0");
    out.kda.gate_lower_bound = float(bound);
  }
  DSA_ASSIGN(const bool full_rank, linear.boolean_or("use_full_rank_gate", false));
  out.kda.low_rank_output = !full_rank;

  // The two lists are disjoint and cover every layer.
  std::vector<bool> is_kda(out.layers.size()), is_latent(out.layers.size());
  for (auto& [key, flags] : {std::pair{"kda_layers", &is_kda}, std::pair{"full_attn_layers", &is_latent}}) {
    DSA_ASSIGN(const std::vector<int64_t> list,
               linear.integers(key, first, first + int64_t(out.layers.size()) - 1));
    for (int64_t layer : list) (*flags)[size_t(layer - first)] = true;
  }
  for (size_t l = 0; l < out.layers.size(); ++l) {
    if (is_kda[l] == is_latent[l])
      return error(Code::model, linear.where(), ": layer ", l + size_t(first),
                   is_kda[l] ? " is in both" : " is in neither", " of 'kda_layers' and 'full_attn_layers'");
    out.layers[l].attention = is_kda[l] ? AttentionKind::kda : AttentionKind::latent;
  }
  return refuse_unknown_keys(linear, {"num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound",
                                      "use_full_rank_gate", "kda_layers", "full_attn_layers", "safe_gate"});
}

Status parse_latent_attention(const JsonFields& text, int rope_min, bool q_rank_optional, ModelConfig& out) {
  LatentAttentionConfig& latent = out.latent;
  DSA_ASSIGN(latent.heads, text.integer("num_attention_heads", 1, kMaxDim));
  DSA_ASSIGN(const int64_t kv_heads, text.integer("num_key_value_heads", 1, kMaxDim));
  if (kv_heads != latent.heads)
    return error(Code::model, text.where(), ": 'num_key_value_heads' is ", kv_heads, ", expected ",
                 latent.heads, " like 'num_attention_heads'");
  if (!q_rank_optional || text.has("q_lora_rank")) {
    DSA_ASSIGN(latent.q_rank, text.integer("q_lora_rank", 1, kMaxDim));
  }
  DSA_ASSIGN(latent.latent_dim, text.integer("kv_lora_rank", 1, kMaxDim));
  DSA_ASSIGN(latent.nope_dim, text.integer("qk_nope_head_dim", 1, kMaxDim));
  DSA_ASSIGN(latent.rope_dim, text.integer("qk_rope_head_dim", rope_min, kMaxDim));
  DSA_ASSIGN(latent.v_dim, text.integer("v_head_dim", 1, kMaxDim));
  if (text.has("qk_head_dim")) {
    DSA_ASSIGN(const int64_t joined, text.integer("qk_head_dim", 1, kMaxDim));
    if (joined != latent.nope_dim + latent.rope_dim)
      return error(Code::model, text.where(), ": 'qk_head_dim' is ", joined, ", expected ", latent.nope_dim,
                   " + ", latent.rope_dim, " like 'qk_nope_head_dim' and 'qk_rope_head_dim'");
  }
  DSA_TRY(expect_boolean(text, "attention_bias", false, false));
  latent.norm_eps = kLatentNormEps;
  latent.scale = 1.f / std::sqrt(float(latent.nope_dim + latent.rope_dim));
  return Status::ok();
}

Status parse_rope(const JsonFields& text, const char* dim_key, int dim, RopeConfig& out, float& scale) {
  const bool joined = text.has("rope_parameters");
  DSA_ASSIGN(const JsonFields place, joined ? text.object("rope_parameters") : Result<JsonFields>(text));
  DSA_ASSIGN(const double theta, number_within(place, "rope_theta", 1, 1e15));
  if (dim % 2 != 0 || dim > kRopeDimMax)
    return error(Code::unsupported, text.where(), ": '", dim_key, "' is ", dim,
                 ", expected an even number up to ", kRopeDimMax);

  Yarn yarn;
  if (joined || text.has("rope_scaling")) {
    DSA_ASSIGN(const JsonFields scaling, joined ? Result<JsonFields>(place) : text.object("rope_scaling"));
    const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
    DSA_ASSIGN(const std::string type, scaling.string(type_key));
    if (type != "yarn" && type != "default")
      return error(Code::unsupported, scaling.where(), ": '", type_key, "' is ", in_quotes(type),
                   ", expected 'yarn' or 'default'");
    DSA_TRY(refuse_unknown_keys(
        scaling,
        {"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast",
         "beta_slow", "mscale", "mscale_all_dim", "truncate", "rope_interleave", "interleaved"}));
    if (type == "yarn") {
      DSA_ASSIGN(yarn.factor, number_within(scaling, "factor", 1, 1e6));
      DSA_ASSIGN(const int64_t context, scaling.integer("original_max_position_embeddings", 1, INT32_MAX));
      yarn.original_context = double(context);
      DSA_ASSIGN(yarn.beta_fast, number_within(scaling, "beta_fast", 0, 1e6, 32));
      DSA_ASSIGN(yarn.beta_slow, number_within(scaling, "beta_slow", 0, 1e6, 1));
      if (yarn.beta_slow >= yarn.beta_fast)
        return error(Code::model, scaling.where(), ": 'beta_slow' is ", yarn.beta_slow,
                     ", expected less than 'beta_fast' ", yarn.beta_fast);
      DSA_ASSIGN(yarn.truncate, scaling.boolean_or("truncate", true));
      // Sines and cosines grow by one mscale over the other, scores by the square of the latter.
      DSA_ASSIGN(const double mscale, number_within(scaling, "mscale", 0, 100, 1));
      DSA_ASSIGN(const double mscale_all, number_within(scaling, "mscale_all_dim", 0, 100, 0));
      const auto growth = [&](double m) { return 0.1 * m * std::log(yarn.factor) + 1; };
      out.amplitude = float(growth(mscale) / growth(mscale_all));
      scale *= float(growth(mscale_all) * growth(mscale_all));
    }
  }
  out.frequencies.resize(size_t(dim / 2));
  fill_rope_frequencies(out.frequencies.data(), dim, theta, yarn);
  return Status::ok();
}

Status parse_indexer(const JsonFields& fields, ModelConfig& out) {
  DSA_ASSIGN(out.indexer.heads, fields.integer("index_n_heads", 1, kMaxDim));
  DSA_ASSIGN(out.indexer.dim, fields.integer("index_head_dim", 1, kMaxDim));
  // No published K3.1 file shows the spelling of this key; these are the ones seen in relatives.
  const char* top_k_key = "index_topk";
  for (const char* spelling : {"index_top_k", "indexer_topk", "topk", "top_k"})
    if (!fields.has(top_k_key) && fields.has(spelling)) top_k_key = spelling;
  DSA_ASSIGN(out.indexer.top_k, fields.integer(top_k_key, 1, kMaxDim));
  out.indexer.norm_eps = kIndexKeyNormEps;
  return Status::ok();
}

Status check_indexer(const JsonFields& fields, const ModelConfig& config) {
  const int dim = config.indexer.dim;
  if (dim < config.latent.rope_dim)
    return error(Code::model, fields.where(), ": 'index_head_dim' is ", dim,
                 ", less than 'qk_rope_head_dim' ", config.latent.rope_dim);
  if (config.indexer.fp8_keys && (dim & (dim - 1)) != 0)
    return error(Code::unsupported, fields.where(), ": 'index_head_dim' is ", dim,
                 ", expected a power of two with FP8 index keys");
  return Status::ok();
}

Status parse_index_sharing(const JsonFields& config, ModelConfig& out) {
  const size_t layers = out.layers.size();
  std::vector<std::string> types(layers, "full");
  const char* key = "indexer_types";
  if (config.has("indexer_types")) {
    DSA_ASSIGN(types, config.strings("indexer_types"));
  } else if (config.has("index_topk_pattern")) {
    key = "index_topk_pattern";
    if (config.json()[key].is_array()) {
      DSA_ASSIGN(types, config.strings(key));
    } else {
      DSA_ASSIGN(const std::string pattern, config.string(key));
      types.clear();
      for (const char letter : pattern) types.emplace_back(1, letter);
    }
    for (std::string& type : types) type = type == "F" ? "full" : type == "S" ? "shared" : type;
  } else if (config.has("index_topk_freq")) {
    key = "index_topk_freq";
    DSA_ASSIGN(const int64_t frequency, config.integer(key, 1, 4096));
    DSA_ASSIGN(const int64_t offset, config.integer_or("index_skip_topk_offset", 2, 0, 4096));
    for (int64_t l = 0; l < int64_t(layers); ++l)
      if (std::max<int64_t>(l - offset + 1, 0) % frequency != 0) types[size_t(l)] = "shared";
  }
  if (types.size() != layers)
    return error(Code::model, config.where(), ": '", key, "' names ", types.size(), " layers, expected ",
                 layers);
  for (size_t l = 0; l < layers; ++l) {
    if (types[l] != "full" && types[l] != "shared")
      return error(Code::model, config.where(), ": '", key, "' has ", in_quotes(types[l]), " at ", l,
                   ", expected 'full' or 'shared'");
    out.layers[l].indexer = types[l] == "full" ? IndexerKind::full : IndexerKind::shared;
  }
  if (out.layers[0].indexer != IndexerKind::full)
    return error(Code::model, config.where(), ": '", key,
                 "' makes layer 0 shared; no layer before it has a set");
  return Status::ok();
}

Status parse_quantization(const JsonFields& text, ModelConfig& out) {
  if (!text.has("quantization_config")) return Status::ok();
  Quantization& quantization = out.quantization;
  DSA_ASSIGN(const JsonFields config, text.object("quantization_config"));
  DSA_ASSIGN(const std::string method, config.string("quant_method"));
  if (method == "fp8") {
    quantization.fp8 = true;
    DSA_TRY(expect_string(config, "fmt", "e4m3"));
    DSA_ASSIGN(const std::vector<int64_t> block, config.integers("weight_block_size", 1, kMaxDim));
    if (block != std::vector<int64_t>{kFp8Block, kFp8Block})
      return error(Code::unsupported, config.where(), ": 'weight_block_size' is not [128, 128]");
  } else if (method == "compressed-tensors") {
    quantization.mxfp4 = true;
    DSA_TRY(expect_string(config, "format", "mxfp4-pack-quantized"));
  } else if (method == "mxfp4") {
    quantization.mxfp4 = true;
  } else {
    return error(Code::unsupported, config.where(), ": 'quant_method' is ", in_quotes(method),
                 ", expected 'fp8', 'compressed-tensors' or 'mxfp4'");
  }
  if (config.has("modules_to_not_convert")) {
    DSA_ASSIGN(quantization.plain_modules, config.strings("modules_to_not_convert"));
  }
  return Status::ok();
}

Status parse_kimi_decoder(const JsonFields& text, const char* context_key, Keys own, ModelConfig& out) {
  DSA_TRY(refuse_unknown_keys(text,
                              {"first_k_dense_replace",
                               "head_dim",
                               "hidden_act",
                               "hidden_size",
                               "intermediate_size",
                               "kv_lora_rank",
                               "linear_attn_config",
                               "mla_use_nope",
                               "mla_use_output_gate",
                               "moe_intermediate_size",
                               "moe_layer_freq",
                               "moe_renormalize",
                               "moe_router_activation_func",
                               "num_attention_heads",
                               "num_expert_group",
                               "num_experts",
                               "num_experts_per_token",
                               "num_hidden_layers",
                               "num_key_value_heads",
                               "num_nextn_predict_layers",
                               "num_shared_experts",
                               "q_lora_rank",
                               "qk_nope_head_dim",
                               "qk_rope_head_dim",
                               "quantization_config",
                               "rms_norm_eps",
                               "rope_scaling",
                               "rope_theta",
                               "routed_scaling_factor",
                               "tie_word_embeddings",
                               "topk_group",
                               "topk_method",
                               "use_grouped_topk",
                               "v_head_dim",
                               "vocab_size"},
                              own));
  return parse_decoder(text, context_key, out);
}

Status parse_kimi_experts(const JsonFields& text, ModelConfig& out) {
  MoeConfig& moe = out.moe;
  DSA_ASSIGN(out.mlp.dim, text.integer("intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(moe.experts, text.integer("num_experts", 1, 1 << 16));
  DSA_ASSIGN(moe.top_k, text.integer("num_experts_per_token", 1, moe.experts));
  DSA_ASSIGN(moe.expert_dim, text.integer("moe_intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(const int64_t shared, text.integer("num_shared_experts", 1, 1024));
  moe.shared_dim = int(shared) * moe.expert_dim;
  DSA_ASSIGN(moe.renormalize, text.boolean_or("moe_renormalize", true));
  DSA_ASSIGN(const double scale, number_within(text, "routed_scaling_factor", 0, 1e6));
  moe.scale = float(scale);
  DSA_ASSIGN(const std::string router, text.string("moe_router_activation_func"));
  DSA_TRY(expect_string(text, "moe_router_activation_func", "sigmoid"));
  DSA_TRY(expect_string(text, "topk_method", "noaux_tc"));
  DSA_TRY(parse_groups(text, "num_expert_group", out));
  return parse_dense_layers(text, out);
}

Status parse_deepseek_experts(const JsonFields& text, ModelConfig& out) {
  MoeConfig& moe = out.moe;
  DSA_ASSIGN(out.mlp.dim, text.integer("intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(moe.experts, text.integer("n_routed_experts", 1, 1 << 16));
  DSA_ASSIGN(moe.top_k, text.integer("num_experts_per_tok", 1, moe.experts));
  DSA_ASSIGN(moe.expert_dim, text.integer("moe_intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(const int64_t shared, text.integer("n_shared_experts", 1, 1024));
  moe.shared_dim = int(shared) * moe.expert_dim;
  DSA_ASSIGN(moe.renormalize, text.boolean_or("norm_topk_prob", true));
  DSA_ASSIGN(const double scale, number_within(text, "routed_scaling_factor", 0, 1e6));
  moe.scale = float(scale);
  DSA_TRY(expect_string(text, "scoring_func", "sigmoid"));
  DSA_TRY(expect_string(text, "topk_method", "noaux_tc"));
  DSA_TRY(expect_string(text, "moe_router_dtype", "float32"));
  DSA_TRY(parse_groups(text, "n_group", out));
  if (!text.has("mlp_layer_types")) return parse_dense_layers(text, out);

  // The list says it layer by layer; where the number is there too, they must agree.
  DSA_ASSIGN(const std::vector<std::string> types, text.strings("mlp_layer_types"));
  if (types.size() != out.layers.size())
    return error(Code::model, text.where(), ": 'mlp_layer_types' names ", types.size(), " layers, expected ",
                 out.layers.size());
  if (text.has("first_k_dense_replace")) DSA_TRY(parse_dense_layers(text, out));
  for (size_t l = 0; l < types.size(); ++l) {
    if (types[l] != "dense" && types[l] != "sparse")
      return error(Code::model, text.where(), ": 'mlp_layer_types' has ", in_quotes(types[l]), " at ", l,
                   ", expected 'dense' or 'sparse'");
    const bool sparse = types[l] == "sparse";
    if (text.has("first_k_dense_replace") && sparse != out.layers[l].moe)
      return error(Code::model, text.where(), ": 'mlp_layer_types' has '", types[l], "' at ", l,
                   ", 'first_k_dense_replace' says otherwise");
    out.layers[l].moe = sparse;
  }
  return Status::ok();
}

Status parse_swiglu(const JsonFields& text, ModelConfig& out) {
  DSA_ASSIGN(const std::string act, text.string("hidden_act"));
  DSA_TRY(expect_string(text, "hidden_act", "silu"));
  DSA_ASSIGN(const double limit, number_within(text, "swiglu_limit", 0, 1e6, 0));
  out.mlp.activation = {.kind = ActivationKind::swiglu, .limit = float(limit)};
  return Status::ok();
}

Status parse_sparse_decoder(const JsonFields& config, Keys own, bool index_pairs, ModelConfig& out) {
  DSA_TRY(refuse_unknown_keys(config,
                              {"attention_bias",
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
                               "vocab_size"},
                              own));
  out.residual = ResidualKind::plain;
  DSA_TRY(parse_decoder(config, "max_position_embeddings", out));
  for (LayerConfig& layer : out.layers) layer.attention = AttentionKind::latent;
  DSA_TRY(parse_latent_attention(config, 2, false, out));  // head_dim says something else from file to file
  DSA_TRY(parse_rope(config, "qk_rope_head_dim", out.latent.rope_dim, out.rope, out.latent.scale));
  DSA_TRY(expect_boolean(config, "rope_interleave", true, true));
  out.latent.rope = RopeKind::pairs;
  DSA_TRY(parse_indexer(config, out));
  DSA_ASSIGN(const bool pairs, config.boolean_or("indexer_rope_interleave", index_pairs));
  out.indexer.rope = pairs ? RopeKind::pairs : RopeKind::halves;
  DSA_TRY(parse_swiglu(config, out));
  DSA_TRY(parse_deepseek_experts(config, out));
  DSA_TRY(parse_quantization(config, out));
  out.indexer.fp8_keys = out.quantization.fp8;
  DSA_TRY(check_indexer(config, out));
  return parse_end_tokens(config, out);
}

}  // namespace dsa
