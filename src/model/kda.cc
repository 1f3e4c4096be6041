#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {

// Gated delta-rule linear attention: its memory is one matrix per head and the last inputs of the
// convolution.
void kda(Step& s, const BlockContext& c, const LayerWeights& layer, Tensor h, Tensor out) {
  Activations& a = s.activations();
  const KdaWeights& w = layer.kda;
  const int64_t tokens = h.dim[0], heads = c.config.kda.heads, dim = c.config.kda.head_dim,
                channels = heads * dim;

  // Query, key, value: projected, then a short causal convolution over time.
  ops::linear(s, h, w.q, a.qkv.columns(0, channels));                         // [tokens, heads * dim]
  ops::linear(s, h, w.k, a.qkv.columns(channels, channels));                  // [tokens, heads * dim]
  ops::linear(s, h, w.v, a.qkv.columns(2 * channels, channels));              // [tokens, heads * dim]
  ops::short_conv(s, a.qkv, w.conv, s.convs(layer.state_index), a.qkv_conv);  // [tokens, 3 * heads * dim]
  const Tensor qkv = a.qkv_conv.reshape({tokens, 3, heads, dim});
  Tensor q = qkv, k = qkv, v = qkv;
  for (Tensor* t : {&q, &k, &v}) {
    t->rank = 3;
    t->dim[1] = heads, t->dim[2] = dim;
    t->stride[1] = dim, t->stride[2] = 1;
  }
  k.data = qkv.f32() + channels;
  v.data = qkv.f32() + 2 * channels;

  // Decay and write strength.
  ops::linear(s, h, w.f_a, a.f_rank);                                // [tokens, rank]
  ops::linear(s, a.f_rank, w.f_b, a.g.reshape({tokens, channels}));  // [tokens, heads * dim]
  ops::linear(s, h, w.b, a.beta);                                    // [tokens, heads]
  ops::kda_gate(s, q, k, a.g, a.beta, w.a_log, w.dt_bias, c.config.kda.gate_lower_bound);

  ops::kda(s, q, k, v, a.g, a.beta, s.kdas(layer.state_index), a.kda_o);  // [tokens, heads, dim]

  // The output gate acts after the norm.
  if (!w.gate_down.is_null()) {
    ops::linear(s, h, w.gate_down, a.kda_gate_rank);      // [tokens, dim]
    ops::linear(s, a.kda_gate_rank, w.gate, a.kda_gate);  // [tokens, heads * dim]
  } else {
    ops::linear(s, h, w.gate, a.kda_gate);  // [tokens, heads * dim]
  }
  ops::gated_norm(s, a.kda_o, a.kda_gate, w.o_norm, c.config.norm_eps, a.kda_o);
  ops::linear(s, a.kda_o.reshape({tokens, channels}), w.o, out);  // [tokens, hidden]
}

}  // namespace dsa
