// model/families/config_blocks.h: parts of a config.json that families share, read into building blocks.
//
// Each reader checks ranges and relations and refuses what the blocks cannot compute, with an error that names the key.
#pragma once

#include <initializer_list>
#include <optional>

#include "kernels/common/numbers.h"
#include "model/model_config.h"

namespace dsa {

constexpr int64_t kMaxDim = 1 << 24;  // no dimension of any model comes near
constexpr float kLatentNormEps =
    1e-6f;  // the vendors' modelling code builds these norms without an eps argument
constexpr float kIndexKeyNormEps = 1e-6f;  // DeepSeek-V3.2's definition of the indexer

using Keys = std::initializer_list<const char*>;

// A key that is neither in `known` or `also` nor without effect on what is computed is refused, unless its value says
// "off": null, false, 0, or empty.
Status refuse_unknown_keys(const JsonFields& fields, Keys known, Keys also = {});
// The key must be absent or have this value.
Status expect_string(const JsonFields& fields, const char* key, const std::string& expected);
Status expect_boolean(const JsonFields& fields, const char* key, bool otherwise, bool expected);
// The key must have this value, which `like` has as well.
Status expect_equal(const JsonFields& fields, const char* key, int64_t expected, const char* like);
// A number in (low, high], or `otherwise`; without `otherwise` the key must be there.
Result<double> number_within(const JsonFields& fields, const char* key, double low, double high,
                             std::optional<double> otherwise = {});
Status three_numbers(const JsonFields& fields, const char* key, float (&out)[3]);

// vocab_size, hidden_size, num_hidden_layers, rms_norm_eps, tie_word_embeddings, and the longest context in `context_key`.
Status parse_decoder(const JsonFields& text, const char* context_key, ModelConfig& out);
// eos_token_id, one or a list; tokens already known stay.
Status parse_end_tokens(const JsonFields& fields, ModelConfig& out);
// parse_decoder() of a Kimi family. `own` are its keys beside those that all of them have.
Status parse_kimi_decoder(const JsonFields& text, const char* context_key, Keys own, ModelConfig& out);
// linear_attn_config: KDA, and which layers are KDA; the lists count layers from `first`.
Status parse_linear_attention(const JsonFields& text, int first, ModelConfig& out);
// num_attention_heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim (at least `rope_min`), v_head_dim; the scale is
// that of unstretched positions. q_lora_rank may be null if `q_rank_optional`.
Status parse_latent_attention(const JsonFields& text, int rope_min, bool q_rank_optional, ModelConfig& out);
// rope_theta and rope_scaling, or both in rope_parameters: frequencies of the `dim` lanes that `dim_key` gives, and
// the factor of YaRN on an attention scale.
Status parse_rope(const JsonFields& text, const char* dim_key, int dim, RopeConfig& out, float& scale);
// index_n_heads, index_head_dim, index_topk.
Status parse_indexer(const JsonFields& fields, ModelConfig& out);
// Whether index keys have room for the lanes that turn, and can be spread before they are rounded.
Status check_indexer(const JsonFields& fields, const ModelConfig& config);
// full: the layer has an indexer; shared: it takes the set of the nearest full layer before it. The list decides, then the
// pattern of F and S, then the frequency.
Status parse_index_sharing(const JsonFields& config, ModelConfig& out);
// quantization_config, if there is one.
Status parse_quantization(const JsonFields& text, ModelConfig& out);

// Experts under the names of the Kimi families, and of the DeepSeek and GLM families: everything but the activation.
Status parse_kimi_experts(const JsonFields& text, ModelConfig& out);
Status parse_deepseek_experts(const JsonFields& text, ModelConfig& out);
// hidden_act silu, and swiglu_limit if there is one.
Status parse_swiglu(const JsonFields& text, ModelConfig& out);

// A decoder of DeepSeek-V3.2's layers, which GLM-5 has too, but for which of them has an indexer. `own` are the keys of the
// family alone; index_pairs: the layout of the indexer's rotary lanes where the config does not say.
Status parse_sparse_decoder(const JsonFields& config, Keys own, bool index_pairs, ModelConfig& out);

}  // namespace dsa
