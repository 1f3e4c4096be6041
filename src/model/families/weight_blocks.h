// model/families/weight_blocks.h: the weights of each building block under the names that families share.
//
// `name` is what stands before the block's own names, "model.layers.3.self_attn.".
#pragma once

#include "model/model_config.h"
#include "model/weights.h"

namespace dsa {

// model.embed_tokens, model.norm and lm_head.
Status load_ends(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out);
Status load_kda(WeightLoader& loader, const std::string& name, const ModelConfig& c, KdaWeights& out);
// With the indexer if the layer has one of its own; indexer tensors on any other layer are refused.
Status load_latent_attention(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                             IndexerKind indexer, LatentAttentionWeights& out);
Status load_mlp(WeightLoader& loader, const std::string& name, int64_t hidden, int64_t dim, MlpWeights& out);

// What the block of experts in a layer and the three matrices of an expert are called. Without `up` the matrices of all
// experts are stacked, gate and up as one.
struct ExpertNames {
  const char *block, *gate, *up, *down;
};
constexpr ExpertNames kKimiExperts = {"block_sparse_moe.", "w1", "w3", "w2"};
constexpr ExpertNames kProjExperts = {"mlp.", "gate_proj", "up_proj", "down_proj"};
constexpr ExpertNames kStackedExperts = {"mlp.", "gate_up_proj", nullptr, "down_proj"};
// Router, experts, shared expert, and the latent space if the config has one.
Status load_moe(WeightLoader& loader, const std::string& name, const ModelConfig& c, const ExpertNames& names,
                MoeWeights& out);

// A layer but for its residuals: its norms, its attention below self_attn., its experts or its feed-forward block below
// mlp.
Status load_layer(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                  const LayerConfig& layer, const ExpertNames& names, LayerWeights& out);
// A decoder with plain residuals: its ends and all its layers.
Status load_plain_decoder(WeightLoader& loader, const ModelConfig& c, const ExpertNames& names,
                          DecoderWeights& out);

}  // namespace dsa
