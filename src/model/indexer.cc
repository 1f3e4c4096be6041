#include <algorithm>

#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// Stands in for index scores in experiments: the newest positions, or any.
void replace_scores(Step& s, Selection selection, const Tensor& all_visible, int first, Tensor scores) {
  std::vector<int32_t> visible(size_t(scores.dim[0]));
  const Tensor of_rows = all_visible.slice(first, scores.dim[0]);
  (void)s.storage().read(visible.data(), of_rows.data,
                         visible.size() * sizeof(int32_t));  // shows at the step's end
  std::vector<float> made(size_t(scores.count()));
  for (int64_t r = 0; r < scores.dim[0]; ++r)
    for (int32_t p = 0; p < visible[size_t(r)]; ++p) {
      uint64_t hash = (uint64_t(visible[size_t(r)]) << 32 | uint32_t(p)) * 0x9e3779b97f4a7c15u;
      hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9u;
      made[size_t(r * scores.dim[1] + p)] = selection == Selection::recent ? float(p) : float(hash >> 40);
    }
  (void)s.storage().write(scores.data, made.data(), made.size() * sizeof(float));
}

// Turns the first lanes by position and makes the rows what an FP8 cache would hold, as the model asks for.
void place_and_round(Step& s, const BlockContext& c, Tensor x) {
  const IndexerConfig& config = c.config.indexer;
  const RopeConfig& rope = c.config.rope;
  if (config.rope != RopeKind::none)
    ops::rope(s, config.rope, c.frequencies, rope.amplitude, x.columns(0, c.config.latent.rope_dim));
  if (config.fp8_keys) {
    ops::hadamard(s, x);
    ops::fp8_round(s, x);
  }
}

// The keys of this step go to the cache: one for each position, or one for each pool that is complete.
void append_keys(Step& s, const BlockContext& c, const IndexerWeights& w, int index_layer, Tensor h) {
  Activations& a = s.activations();
  const IndexerConfig& config = c.config.indexer;
  const PagedRows index_keys = s.index_keys(index_layer);
  const int64_t tokens = h.dim[0];
  ops::exact_linear(s, h, w.k, a.index_k);                                             // [tokens, dim]
  ops::layer_norm(s, a.index_k, w.k_norm, w.k_norm_bias, config.norm_eps, a.index_k);  // [tokens, dim]
  place_and_round(s, c, a.index_k.reshape({tokens, 1, config.dim}));                   // [tokens, 1, dim]
  if (config.group == 1) return ops::append_rows(s, a.index_k, index_keys);

  // The pool that stays open goes on in the state of its sequence.
  ops::exact_linear(s, h, w.pool_gate, a.index_gates);  // [tokens, dim]
  ops::pool_keys(s, a.index_k, a.index_gates, w.pool_places, s.pools(index_layer), index_keys,
                 a.pools_visible);
}

}  // namespace

Tensor indexer(Step& s, const BlockContext& c, const IndexerWeights& w, int index_layer, Tensor q_rank,
               Tensor h) {
  Activations& a = s.activations();
  const IndexerConfig& config = c.config.indexer;
  const PagedRows index_keys = s.index_keys(index_layer);
  const int64_t tokens = h.dim[0];

  // Keys are written always: a later step needs those of today's short context.
  append_keys(s, c, w, index_layer, h);
  if (config.selects_all(s.batch().max_visible)) return Tensor();

  ops::exact_linear(s, q_rank, w.q,
                    a.index_q.reshape({tokens, config.heads * config.dim}));  // [tokens, heads * dim]
  place_and_round(s, c, a.index_q);                                           // [tokens, heads, dim]
  ops::exact_linear(s, h, w.head_weights, a.index_weights);                   // [tokens, heads]

  // What is scored and selected: positions, or pools of them.
  const bool pooled = config.group > 1;
  const Tensor visible =
      pooled ? a.pools_visible : Tensor(const_cast<int32_t*>(s.view().visible), DType::i32, {tokens});
  const Tensor chosen = pooled ? a.pools : a.selected;  // [tokens, top_k / group]

  // A row of decode is that of the same sequence as in the step before, most likely.
  const bool decode = s.batch().tokens == s.batch().sequences;
  const Tensor guesses = decode ? a.guesses.slice(index_layer, 1).reshape({a.guesses.dim[1]}) : Tensor();

  // The constants of the score do not change the order, so they are left out. Scores of a few rows at a time.
  const int64_t context = std::max(1, s.batch().context / config.group);
  const int64_t rows_max = std::max<int64_t>(1, a.index_scores.count() / context);
  for (int64_t first = 0; first < tokens; first += rows_max) {
    const int64_t rows = std::min(rows_max, tokens - first);
    const Tensor scores(a.index_scores.data, DType::f32, {rows, context});
    if (c.options.selection == Selection::learned)
      ops::index_scores(s, a.index_q, a.index_weights, index_keys, visible, int(first),
                        scores);  // [rows, context]
    else
      replace_scores(s, c.options.selection, visible, int(first), scores);
    ops::top_k(s, scores, visible, int(first), guesses, chosen.slice(first, rows));  // [rows, top_k / group]
  }
  if (pooled) ops::expand_pools(s, a.pools, config.group, config.tail, a.selected);  // [tokens, slots]
  return a.selected;
}

}  // namespace dsa
