#include "model/families/weight_blocks.h"

#include <algorithm>

namespace dsa {
namespace {

constexpr const char* kNoUse = "the config has no use for it";

}  // namespace

Status load_ends(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  DSA_TRY(loader.plain_matrix("model.embed_tokens.weight", {c.vocab, c.hidden}, out.embedding));
  DSA_TRY(loader.matrix("lm_head.weight", {c.vocab, c.hidden}, out.head));
  return loader.vector("model.norm.weight", {c.hidden}, out.final_norm);
}

Status load_kda(WeightLoader& loader, const std::string& name, const ModelConfig& c, KdaWeights& out) {
  const int64_t channels = int64_t(c.kda.heads) * c.kda.head_dim, width = c.kda.conv_width;
  DSA_TRY(loader.matrix(name + "q_proj.weight", {channels, c.hidden}, out.q));
  DSA_TRY(loader.matrix(name + "k_proj.weight", {channels, c.hidden}, out.k));
  DSA_TRY(loader.matrix(name + "v_proj.weight", {channels, c.hidden}, out.v));
  float* conv = loader.own(size_t(3 * channels * width));
  out.conv = Tensor(conv, DType::f32, {3 * channels, width});
  for (const char* filter : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    Tensor filters;
    DSA_TRY(loader.vector(name + filter, {channels, width}, filters));
    if (conv != nullptr) conv = std::copy(filters.f32(), filters.f32() + filters.count(), conv);
  }
  DSA_TRY(loader.matrix(name + "f_a_proj.weight", {c.kda.head_dim, c.hidden}, out.f_a));
  DSA_TRY(loader.matrix(name + "f_b_proj.weight", {channels, c.kda.head_dim}, out.f_b));
  DSA_TRY(loader.vector(name + "A_log", {c.kda.heads}, out.a_log, true));  // padded in published files
  DSA_TRY(loader.vector(name + "dt_bias", {channels}, out.dt_bias));
  DSA_TRY(loader.matrix(name + "b_proj.weight", {c.kda.heads, c.hidden}, out.b));
  if (c.kda.low_rank_output) {
    DSA_TRY(loader.matrix(name + "g_a_proj.weight", {c.kda.head_dim, c.hidden}, out.gate_down));
    DSA_TRY(loader.matrix(name + "g_b_proj.weight", {channels, c.kda.head_dim}, out.gate));
  } else {
    DSA_TRY(loader.matrix(name + "g_proj.weight", {channels, c.hidden}, out.gate));
  }
  DSA_TRY(loader.vector(name + "o_norm.weight", {c.kda.head_dim}, out.o_norm));
  return loader.matrix(name + "o_proj.weight", {c.hidden, channels}, out.o);
}

namespace {

Status load_indexer(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                    IndexerWeights& out) {
  DSA_TRY(loader.matrix(name + "wq_b.weight", {int64_t(c.indexer.heads) * c.indexer.dim, c.latent.q_rank},
                        out.q));
  DSA_TRY(loader.matrix(name + "wk.weight", {c.indexer.dim, c.hidden}, out.k));
  DSA_TRY(loader.vector(name + "k_norm.weight", {c.indexer.dim}, out.k_norm));
  if (c.indexer.norm_bias || loader.has(name + "k_norm.bias", true))
    DSA_TRY(loader.vector(name + "k_norm.bias", {c.indexer.dim}, out.k_norm_bias));
  return loader.matrix(name + "weights_proj.weight", {c.indexer.heads, c.hidden}, out.head_weights);
}

}  // namespace

Status load_latent_attention(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                             IndexerKind indexer, LatentAttentionWeights& out) {
  const LatentAttentionConfig& a = c.latent;
  const int64_t values = int64_t(a.heads) * a.v_dim;
  const int64_t queries = int64_t(a.heads) * (a.nope_dim + a.rope_dim);
  if (a.q_rank > 0) {
    DSA_TRY(loader.matrix(name + "q_a_proj.weight", {a.q_rank, c.hidden}, out.q_down));
    DSA_TRY(loader.vector(name + "q_a_layernorm.weight", {a.q_rank}, out.q_norm));
    DSA_TRY(loader.matrix(name + "q_b_proj.weight", {queries, a.q_rank}, out.q_up));
  } else {
    DSA_TRY(loader.matrix(name + "q_proj.weight", {queries, c.hidden}, out.q_up));
  }
  DSA_TRY(
      loader.matrix(name + "kv_a_proj_with_mqa.weight", {a.latent_dim + a.rope_dim, c.hidden}, out.kv_down));
  DSA_TRY(loader.vector(name + "kv_a_layernorm.weight", {a.latent_dim}, out.kv_norm));

  // Per head: the rows that make keys, then the rows that make values.
  Tensor kv_up;
  const int64_t rows = a.nope_dim + a.v_dim;
  DSA_TRY(loader.plain_matrix(name + "kv_b_proj.weight", {a.heads * rows, a.latent_dim}, kv_up));
  kv_up = kv_up.reshape({a.heads, rows, a.latent_dim});
  out.k_up = out.v_up = kv_up;
  out.k_up.dim[1] = a.nope_dim;
  out.v_up.dim[1] = a.v_dim;
  if (!kv_up.is_null())
    out.v_up.data = kv_up.as<char>() + size_t(a.nope_dim) * size_t(a.latent_dim) * dtype_bytes(kv_up.dtype);

  if (a.output_gate)
    DSA_TRY(loader.matrix(name + "g_proj.weight", {values, c.hidden}, out.gate));
  else
    DSA_TRY(loader.expect(name + "g_proj.weight", false, kNoUse));
  DSA_TRY(loader.matrix(name + "o_proj.weight", {c.hidden, values}, out.o));
  const bool own = indexer == IndexerKind::full;
  DSA_TRY(loader.expect(
      name + "indexer.wk.weight", own,
      own ? "its layer has an indexer by the config" : "its layer has no indexer by the config"));
  return own ? load_indexer(loader, name + "indexer.", c, out.indexer) : Status::ok();
}

Status load_mlp(WeightLoader& loader, const std::string& name, int64_t hidden, int64_t dim, MlpWeights& out) {
  DSA_TRY(loader.matrix(name + "gate_proj.weight", {dim, hidden}, out.gate));
  DSA_TRY(loader.matrix(name + "up_proj.weight", {dim, hidden}, out.up));
  return loader.matrix(name + "down_proj.weight", {hidden, dim}, out.down);
}

Status load_moe(WeightLoader& loader, const std::string& name, const ModelConfig& c, const ExpertNames& names,
                MoeWeights& out) {
  const MoeConfig& moe = c.moe;
  DSA_TRY(loader.matrix(name + "gate.weight", {moe.experts, c.hidden}, out.router));
  DSA_TRY(loader.vector(name + "gate.e_score_correction_bias", {moe.experts}, out.router_bias));
  if (moe.latent_dim > 0) {
    DSA_TRY(
        loader.matrix(name + "routed_expert_down_proj.weight", {moe.latent_dim, c.hidden}, out.latent_down));
    DSA_TRY(loader.matrix(name + "routed_expert_up_proj.weight", {c.hidden, moe.latent_dim}, out.latent_up));
  }
  if (moe.latent_norm)
    DSA_TRY(loader.vector(name + "routed_expert_norm.weight", {moe.latent_dim}, out.latent_norm));
  else
    DSA_TRY(loader.expect(name + "routed_expert_norm.weight", false, kNoUse));
  DSA_TRY(load_mlp(loader, name + "shared_experts.", c.hidden, moe.shared_dim, out.shared));

  const int64_t width = c.expert_width();
  return loader.for_each_expert(moe.experts, out.experts, [&](int64_t e, ExpertWeights& w) -> Status {
    const std::string expert = concat(name, "experts.", e, ".");
    DSA_TRY(loader.expert_matrix(expert + names.gate, moe.expert_dim, width, w.gate));
    DSA_TRY(loader.expert_matrix(expert + names.up, moe.expert_dim, width, w.up));
    return loader.expert_matrix(expert + names.down, width, moe.expert_dim, w.down);
  });
}

Status load_layer(WeightLoader& loader, const std::string& name, const ModelConfig& c,
                  const LayerConfig& layer, const ExpertNames& names, LayerWeights& out) {
  out.attention = layer.attention;
  out.indexer = layer.indexer;
  out.is_moe = layer.moe;
  DSA_TRY(loader.vector(name + "input_layernorm.weight", {c.hidden}, out.attn_norm));
  DSA_TRY(loader.vector(name + "post_attention_layernorm.weight", {c.hidden}, out.mlp_norm));
  if (layer.attention == AttentionKind::kda)
    DSA_TRY(load_kda(loader, name + "self_attn.", c, out.kda));
  else
    DSA_TRY(load_latent_attention(loader, name + "self_attn.", c, layer.indexer, out.latent));
  return layer.moe ? load_moe(loader, name + names.block, c, names, out.moe)
                   : load_mlp(loader, name + "mlp.", c.hidden, c.mlp.dim, out.mlp);
}

Status load_plain_decoder(WeightLoader& loader, const ModelConfig& c, const ExpertNames& names,
                          DecoderWeights& out) {
  DSA_TRY(load_ends(loader, c, out));
  out.layers.resize(c.layers.size());
  for (size_t l = 0; l < c.layers.size(); ++l)
    DSA_TRY(load_layer(loader, concat("model.layers.", l, "."), c, c.layers[l], names, out.layers[l]));
  return Status::ok();
}

}  // namespace dsa
