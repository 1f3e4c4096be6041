#include <algorithm>

#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// Stands in for index scores in experiments: the newest positions, or any.
void replace_scores(Selection selection, const Batch& batch, int first, Tensor scores) {
  for (int64_t r = 0; r < scores.dim[0]; ++r) {
    float* row = scores.f32() + r * scores.stride[0];
    const int32_t visible = batch.visible[size_t(first + r)];
    for (int32_t p = 0; p < visible; ++p) {
      uint64_t hash = (uint64_t(visible) << 32 | uint32_t(p)) * 0x9e3779b97f4a7c15u;
      hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
      row[p] = selection == Selection::recent ? float(p) : float(hash >> 40);
    }
  }
}

// Turns the first lanes by position and makes the rows what an FP8 cache would hold, as the model asks for.
void place_and_round(Step& s, const BlockContext& c, Tensor x) {
  const IndexerConfig& config = c.config.indexer;
  const RopeConfig& rope = c.config.rope;
  if (config.rope != RopeKind::none)
    ops::rope(s, config.rope, rope.frequencies, rope.amplitude, x.columns(0, c.config.latent.rope_dim));
  if (config.fp8_keys) {
    ops::hadamard(s, x);
    ops::fp8_round(s, x);
  }
}

}  // namespace

Tensor indexer(Step& s, const BlockContext& c, const IndexerWeights& w, int index_layer, Tensor q_rank,
               Tensor h) {
  Activations& a = s.activations();
  const IndexerConfig& config = c.config.indexer;
  const PagedRows index_keys = s.index_keys(index_layer);
  const int64_t tokens = h.dim[0];

  // Keys are written always: a later step needs those of today's short context.
  ops::linear(s, h, w.k, a.index_k);                                                   // [tokens, dim]
  ops::layer_norm(s, a.index_k, w.k_norm, w.k_norm_bias, config.norm_eps, a.index_k);  // [tokens, dim]
  place_and_round(s, c, a.index_k.reshape({tokens, 1, config.dim}));                   // [tokens, 1, dim]
  ops::append_rows(s, a.index_k, index_keys);

  if (s.batch().max_visible <= config.top_k) return Tensor();  // the selection is the identity

  ops::linear(s, q_rank, w.q,
              a.index_q.reshape({tokens, config.heads * config.dim}));  // [tokens, heads * dim]
  place_and_round(s, c, a.index_q);                                     // [tokens, heads, dim]
  ops::linear(s, h, w.head_weights, a.index_weights);                   // [tokens, heads]

  // The constants of the score do not change the order, so they are left out. Scores of a few rows at a time.
  const int64_t context = s.batch().max_visible;
  const int64_t rows_max = std::max<int64_t>(1, a.index_scores.count() / context);
  for (int64_t first = 0; first < tokens; first += rows_max) {
    const int64_t rows = std::min(rows_max, tokens - first);
    const Tensor scores(a.index_scores.data, DType::f32, {rows, context});
    if (c.options.selection == Selection::learned)
      ops::index_scores(s, a.index_q, a.index_weights, index_keys, int(first), scores);  // [rows, context]
    else
      replace_scores(c.options.selection, s.batch(), int(first), scores);
    ops::top_k(s, scores, int(first), a.selected.slice(first, rows));  // [rows, top_k]
  }
  return a.selected;
}

}  // namespace dsa
