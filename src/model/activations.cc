#include "model/activations.h"

#include <algorithm>

namespace dsa {

Activations::Activations(const ModelConfig& c, int tokens, int sequences, Room& room)
    : experts_per_token_(c.moe.top_k) {
  const auto floats = [&](std::initializer_list<int64_t> dims) { return room.floats(dims); };
  const auto integers = [&](std::initializer_list<int64_t> dims) { return room.integers(dims); };
  const int64_t n = tokens, hidden = c.hidden;
  const int64_t channels = int64_t(c.kda.heads) * c.kda.head_dim;
  x = floats({n, hidden});
  h = floats({n, hidden});
  out = floats({n, hidden});
  if (c.residual == ResidualKind::attn_residual)
    for (int i = 0; i <= c.num_banks(); ++i) banks.push_back(floats({n, hidden}));
  running = c.residual == ResidualKind::attn_residual ? banks.front() : floats({n, hidden});
  kept = floats({sequences, hidden * (c.residual == ResidualKind::hyper ? c.hyper.streams : 1)});

  if (c.residual == ResidualKind::hyper) {
    streams = floats({n, c.hyper.streams, hidden});
    hyper_logits = floats({n, c.hyper.mixes()});
    hyper_coefficients = floats({n, c.hyper.coefficients()});
  }

  qkv = floats({n, 3 * channels});
  qkv_conv = floats({n, 3 * channels});
  f_rank = floats({n, c.kda.head_dim});
  g = floats({n, c.kda.heads, c.kda.head_dim});
  beta = floats({n, c.kda.heads});
  kda_o = floats({n, c.kda.heads, c.kda.head_dim});
  kda_gate = floats({n, channels});
  if (c.kda.low_rank_output) kda_gate_rank = floats({n, c.kda.head_dim});

  const LatentAttentionConfig& a = c.latent;
  q_rank = floats({n, a.q_rank});
  q = floats({n, a.heads, a.nope_dim + a.rope_dim});
  q_latent = floats({n, a.heads, a.latent_dim});
  kv = floats({n, a.latent_dim + a.rope_dim});
  o_latent = floats({n, a.heads, a.latent_dim});
  o = floats({n, a.heads, a.v_dim});
  if (a.output_gate) gate = floats({n, int64_t(a.heads) * a.v_dim});

  const GroupedAttentionConfig& grouped = c.grouped;
  gqa_q = floats({n, grouped.heads, grouped.head_dim});
  gqa_o = floats({n, grouped.heads, grouped.head_dim});
  gqa_k = floats({n, grouped.kv_dim()});
  gqa_v = floats({n, grouped.kv_dim()});

  if (c.indexer.top_k > 0) {
    index_q = floats({n, c.indexer.heads, c.indexer.dim});
    index_k = floats({n, c.indexer.dim});
    index_weights = floats({n, c.indexer.heads});
    if (c.indexer.group > 1) {
      index_gates = floats({n, c.indexer.dim});
      pools_visible = integers({n});
      pools = integers({n, c.indexer.top_k / c.indexer.group});
    }
    selected = integers({n, c.indexer.slots()});
    guesses = integers({state_layout_of(c, CacheFormat::f32).index_layers, sequences});
    index_scores = floats({std::max<int64_t>(kScoreFloats, c.max_context)});
  }

  const int64_t pairs_max = n * c.moe.top_k;
  router_logits = floats({n, c.moe.experts});
  expert_ids = integers({n, c.moe.top_k});
  expert_weights = floats({n, c.moe.top_k});
  offsets = integers({c.moe.experts + 1});
  pairs = integers({pairs_max});
  rows = integers({pairs_max});
  latent = floats({n, c.moe.latent_dim});
  expert_x = floats({pairs_max, c.expert_width()});
  expert_y = floats({pairs_max, c.expert_width()});
  expert_gate = floats({pairs_max, c.moe.expert_dim});
  expert_up = floats({pairs_max, c.moe.expert_dim});
  if (c.moe.biased) expert_gate_up = floats({pairs_max, 2 * int64_t(c.moe.expert_dim)});
  mlp_gate = floats({n, std::max(c.mlp.dim, c.moe.shared_dim)});
  mlp_up = floats({n, std::max(c.mlp.dim, c.moe.shared_dim)});
  max_groups = int(2 * std::min<int64_t>(c.moe.experts, pairs_max));
  mxfp4_groups = room.array<Mxfp4LinearGroup>(size_t(max_groups));
  linear_groups = room.array<ExpertLinearGroup>(size_t(max_groups));
  workspace.bytes = mxfp4_linear_workspace_bytes(pairs_max, std::max(c.expert_width(), c.moe.expert_dim));
  for (const Tensor* input : {&h, &kda_o, &f_rank, &kda_gate_rank, &q_rank, &o, &gqa_o, &latent, &mlp_gate})
    if (input->rank > 0)
      workspace.bytes = std::max(workspace.bytes, linear_workspace_bytes(n, input->count() / n));
  workspace.data = room.bytes(workspace.bytes);
}

void Activations::set_tokens(int n) {
  for (Tensor* t : {&x,
                    &h,
                    &out,
                    &running,
                    &qkv,
                    &qkv_conv,
                    &f_rank,
                    &g,
                    &beta,
                    &kda_o,
                    &kda_gate,
                    &kda_gate_rank,
                    &q_rank,
                    &q,
                    &q_latent,
                    &kv,
                    &o_latent,
                    &o,
                    &gate,
                    &index_q,
                    &index_k,
                    &index_weights,
                    &selected,
                    &router_logits,
                    &expert_ids,
                    &expert_weights,
                    &latent,
                    &mlp_gate,
                    &mlp_up,
                    &streams,
                    &hyper_logits,
                    &hyper_coefficients,
                    &gqa_q,
                    &gqa_o,
                    &gqa_k,
                    &gqa_v,
                    &index_gates,
                    &pools_visible,
                    &pools})
    t->dim[0] = n;
  for (Tensor& bank : banks) bank.dim[0] = n;
  for (Tensor* t : {&pairs, &rows, &expert_x, &expert_y, &expert_gate, &expert_up, &expert_gate_up})
    t->dim[0] = int64_t(n) * experts_per_token_;
}

}  // namespace dsa
