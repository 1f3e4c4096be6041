// model/model_config.h: what a config.json says, in terms of building blocks. A family's mapping file fills
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/json.h"
#include "ops/ops.h"
#include "state/state_layout.h"

namespace dsa {

enum class AttentionKind { kda, latent, grouped };
enum class ResidualKind { attn_residual, plain, hyper };
// Which positions a latent attention layer reads: all, its own selection, or that of the last layer that had one.
enum class IndexerKind { none, full, shared };

struct KdaConfig {
  int heads = 0, head_dim = 0, conv_width = 0;
  float gate_lower_bound = 0;    // 0: the gate of softplus
  bool low_rank_output = false;  // the output gate goes through head_dim values
};

// Rotary positions; the lanes and their layout belong to the block that turns.
struct RopeConfig {
  std::vector<float> frequencies;  // [rope_dim / 2]
  float amplitude = 1;
};

struct LatentAttentionConfig {
  int heads = 0, latent_dim = 0, nope_dim = 0, rope_dim = 0, v_dim = 0;
  int q_rank = 0;                  // 0: queries come straight from the hidden vector
  RopeKind rope = RopeKind::none;  // of the rope_dim lanes; none: they are read as they are
  bool output_gate = false;
  float norm_eps = 0;  // of the latent norms
  float scale = 0;     // of the scores
};

// Query heads that share keys and values in groups, with positions in halves and a sink for each head.
struct GroupedAttentionConfig {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int window = 0;   // positions that the layers with a window see
  float scale = 0;  // of the scores

  int kv_dim() const { return kv_heads * head_dim; }
};

// Residual streams that blocks read and write through mixes.
struct HyperConfig {
  int streams = 0, iterations = 0;
  float eps = 0;

  int mixes() const { return (2 + streams) * streams; }
  int coefficients() const { return (1 + streams) * streams; }
};

struct IndexerConfig {
  int heads = 0, dim = 0, top_k = 0;
  int group = 1;                   // positions that share an index key and are selected together: a pool
  bool tail = true;                // the positions of the pool that is still open are always selected
  RopeKind rope = RopeKind::none;  // of the first latent.rope_dim lanes
  bool fp8_keys = false;           // queries and keys are spread by a Hadamard matrix and rounded to FP8
  bool norm_bias = true;           // false: the key norm may come without a bias
  float norm_eps = 0;

  int slots() const { return top_k + group - 1; }  // positions that a token may select
  bool selects_all(int visible) const { return (tail || group == 1) && visible <= slots(); }
};

struct MlpConfig {
  int dim = 0;                // of the dense layers
  ActivationForm activation;  // of every feed-forward block
};

struct MoeConfig {
  int experts = 0, top_k = 0, expert_dim = 0, shared_dim = 0;
  int latent_dim = 0;  // 0: experts read and write the hidden vector
  bool latent_norm = false;
  bool renormalize = true;
  float scale = 1;
  int groups = 1, top_groups = 1;
  // Experts with biases, chosen and weighed by a softmax; their first product gives gate and up in turns.
  bool biased = false;
  float alpha = 0, limit = 0;  // of their activation
};

// How a picture is brought to size: at most so many patches, or an area between two bounds.
enum class PictureRule { patch_limit, area_range };

// Pictures: a tower of `layers` blocks over patches, and a projector that makes a token of merge x merge of them.
struct VisionConfig {
  int layers = 0, hidden = 0, heads = 0, head_dim = 0, mlp_dim = 0;  // layers 0: the model reads text only
  int table_rows = 0, table_columns = 0;  // of the learned positions; 0: there are none
  Rope2dKind rope = Rope2dKind::pairs;
  bool biases = false;  // of the blocks
  bool gated = false;   // feed-forward blocks are gated by `activation`; else a GELU between two products
  ActivationForm activation;  // also of a gated projector
  int projector_dim = 0;      // of a gated projector behind a downsampling product; 0: two products
  float norm_eps = 0, projector_eps = 0;

  // How a picture becomes patches.
  PictureRule rule = PictureRule::patch_limit;
  int patch = 0, merge = 0;             // pixels of a side; patches of a side of a token
  int patch_limit = 0, side_limit = 0;  // patches of a picture, and along one side, before padding
  int64_t area_min = 0, area_max = 0;   // pixels of a padded picture
  float mean[3] = {}, std[3] = {};      // of pixel values in [0, 1]

  int patch_values() const { return 3 * patch * patch; }
  int merged() const { return merge * merge * hidden; }  // values that become one token
};

// Number formats that quantization_config announces. Which tensor has which is seen in the files.
struct Quantization {
  bool fp8 = false;                        // matrices
  bool mxfp4 = false;                      // routed experts
  std::vector<std::string> plain_modules;  // left as they are; a * stands for a layer
};

struct LayerConfig {
  AttentionKind attention = AttentionKind::kda;
  IndexerKind indexer = IndexerKind::none;
  bool moe = false;
  bool window = false;  // of grouped attention
};

struct ModelConfig {
  std::string family, architecture;
  int vocab = 0, hidden = 0, max_context = 0;
  float norm_eps = 0;
  ResidualKind residual = ResidualKind::attn_residual;
  int residual_block = 0;  // of attention residuals: layers between banked sources
  std::vector<LayerConfig> layers;
  KdaConfig kda;
  RopeConfig rope;
  LatentAttentionConfig latent;
  GroupedAttentionConfig grouped;
  HyperConfig hyper;
  IndexerConfig indexer;
  MlpConfig mlp;
  MoeConfig moe;
  VisionConfig vision;
  Quantization quantization;
  std::string tensor_prefix;  // "language_model."
  std::vector<int32_t> eos_tokens;

  // Parameters as the config describes them, in total and used per token: those of a survey of the config alone.
  uint64_t parameters = 0, active_parameters = 0;

  // Sources of attention residuals that are banked.
  int num_banks() const {
    return residual_block > 0 ? (int(layers.size()) + residual_block - 1) / residual_block : 0;
  }
  int expert_width() const { return moe.latent_dim > 0 ? moe.latent_dim : hidden; }  // what an expert reads
};

// Dispatches on the outer architecture; a family or key that we do not know is a typed error that names it. `folder`
// is where a model that reads pictures has its preprocessor_config.json; empty: the config is all there is, and how
// pictures are brought to size stays open.
Result<std::shared_ptr<const ModelConfig>> parse_model_config(const Json& config, const std::string& where,
                                                              const std::string& folder = ".");

// What a sequence of the model keeps.
StateLayout state_layout_of(const ModelConfig& config, CacheFormat format);

}  // namespace dsa
