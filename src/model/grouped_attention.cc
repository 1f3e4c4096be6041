#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {

// Attention of query heads in groups over keys and values of their own, in some layers through a window.
void grouped_attention(Step& s, const BlockContext& c, const LayerWeights& layer, const BlockInput& in,
                       const BlockOutput& out) {
  Activations& a = s.activations();
  const GroupedAttentionWeights& w = layer.grouped;
  const GroupedAttentionConfig& config = c.config.grouped;
  const RopeConfig& rope = c.config.rope;
  const PagedRows keys = s.keys(layer.state_index), values = s.values(layer.state_index);
  const int64_t tokens = in.x.dim[0];
  const Tensor q = a.gqa_q.reshape({tokens, config.heads * config.head_dim}),
               o = a.gqa_o.reshape({tokens, config.heads * config.head_dim});

  ops::norm_linears(s, in.x, in.norm, c.config.norm_eps, a.h,
                    {{w.q, q},          // [tokens, heads * dim]
                     {w.k, a.gqa_k},    // [tokens, kv_heads * dim]
                     {w.v, a.gqa_v}});  // [tokens, kv_heads * dim]
  ops::add_bias(s, w.q_bias, q);
  ops::add_bias(s, w.k_bias, a.gqa_k);
  ops::add_bias(s, w.v_bias, a.gqa_v);

  ops::rope(s, RopeKind::halves, c.frequencies, rope.amplitude, a.gqa_q);
  ops::rope(s, RopeKind::halves, c.frequencies, rope.amplitude,
            a.gqa_k.reshape({tokens, config.kv_heads, config.head_dim}));
  ops::append_rows(s, a.gqa_k, keys);  // into the pages of each sequence
  ops::append_rows(s, a.gqa_v, values);

  ops::gqa_attention(s, a.gqa_q, keys, values, w.sinks, layer.window ? config.window : 0, config.scale,
                     a.gqa_o);
  ops::linear(s, o, w.o, a.out);  // [tokens, hidden]
  ops::add_bias(s, w.o_bias, a.out);
  if (!out.addend.is_null()) ops::add(s, out.addend, a.out, out.y);
}

}  // namespace dsa
