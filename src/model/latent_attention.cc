#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// Shows the observer a copy of what was selected.
void observe(Step& s, const BlockContext& c, int layer_number, const Tensor& selected) {
  if (!c.observer) return;
  if (selected.is_null()) return c.observer(layer_number, s.batch(), selected);
  std::vector<int32_t> copy(size_t(selected.count()));
  if (!s.storage().read(copy.data(), selected.data, copy.size() * sizeof(int32_t)).is_ok())
    return;  // shows at the step's end
  c.observer(layer_number, s.batch(), Tensor(copy.data(), DType::i32, {selected.dim[0], selected.dim[1]}));
}

}  // namespace

// Attention in the latent space of the cache, over the positions that the indexer selects or over all.
void latent_attention(Step& s, const BlockContext& c, const LayerWeights& layer, int layer_number,
                      const BlockInput& in, const BlockOutput& out) {
  Activations& a = s.activations();
  const LatentAttentionWeights& w = layer.latent;
  const LatentAttentionConfig& config = c.config.latent;
  const PagedRows latents = s.latents(layer.state_index);
  const int64_t tokens = in.x.dim[0];
  const Tensor q_nope = a.q.columns(0, config.nope_dim),
               q_rope = a.q.columns(config.nope_dim, config.rope_dim);
  const Tensor latent = a.kv.columns(0, config.latent_dim);

  // Query: down to a small rank if the model has one, up to heads, then into the latent space of the cache. Key and value:
  // one latent row per token, shared by every head.
  const Tensor q = a.q.reshape({tokens, config.heads * (config.nope_dim + config.rope_dim)});
  const bool ranked = !w.q_down.is_null();
  ops::norm_linears(s, in.x, in.norm, config.norm_eps, a.h,
                    {{ranked ? w.q_down : w.q_up, ranked ? a.q_rank : q},  // [tokens, q_rank]
                     {w.kv_down, a.kv},                                    // [tokens, latent + rope]
                     {w.gate, a.gate}});                                   // [tokens, heads * v_dim]
  if (ranked) {
    ops::rms_norm(s, a.q_rank, w.q_norm, config.norm_eps, a.q_rank);  // [tokens, q_rank]
    ops::linear(s, a.q_rank, w.q_up, q);
  }
  ops::head_linear(s, q_nope, w.k_up, true, a.q_latent);  // [tokens, heads, latent]

  ops::rms_norm(s, latent, w.kv_norm, config.norm_eps, latent);  // [tokens, latent]
  if (config.rope != RopeKind::none) {
    const RopeConfig& rope = c.config.rope;
    const Tensor k_rope = a.kv.reshape({tokens, 1, config.latent_dim + config.rope_dim})
                              .columns(config.latent_dim, config.rope_dim);
    ops::rope(s, config.rope, c.frequencies, rope.amplitude, q_rope);  // [tokens, heads, rope]
    ops::rope(s, config.rope, c.frequencies, rope.amplitude, k_rope);  // [tokens, 1, rope]
  }
  ops::append_rows(s, a.kv, latents);  // into the pages of each sequence

  // Attend to the selected rows only, leave the latent space, gate, project back.
  Tensor selected;  // null: every visible position
  switch (layer.indexer) {
    case IndexerKind::none: break;
    case IndexerKind::full:
      selected = indexer(s, c, w.indexer, layer.index_layer, a.q_rank, a.h);  // [tokens, slots]
      break;
    case IndexerKind::shared:  // positions are the same in every layer
      if (!c.config.indexer.selects_all(s.batch().max_visible)) selected = a.selected;
      break;
  }
  observe(s, c, layer_number, selected);
  ops::sparse_attention(s, a.q_latent, q_rope, latents, selected, config.scale, a.o_latent);
  ops::head_linear(s, a.o_latent, w.v_up, false, a.o);  // [tokens, heads, v_dim]
  const Tensor o = a.o.reshape({tokens, config.heads * config.v_dim});
  if (!w.gate.is_null()) ops::sigmoid_gate(s, o, a.gate, o);  // [tokens, heads * v_dim]
  ops::add_linear(s, o, w.o, out.addend, a.out, out.y);       // [tokens, hidden]
}

}  // namespace dsa
