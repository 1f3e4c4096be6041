#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {

// Gated delta-rule linear attention: its memory is one matrix per head and the last inputs of the
// convolution.
void kda(Step& s, const BlockContext& c, const LayerWeights& layer, const BlockInput& in,
         const BlockOutput& out) {
  Activations& a = s.activations();
  const KdaWeights& w = layer.kda;
  const float eps = c.config.norm_eps, bound = c.config.kda.gate_lower_bound;
  const int64_t tokens = in.x.dim[0], heads = c.config.kda.heads, dim = c.config.kda.head_dim,
                channels = heads * dim;
  const bool low_rank_gate = !w.gate_down.is_null();

  // Query, key, value, decay, write strength and output gate; two of them through a small rank.
  const Tensor z = a.g.reshape({tokens, channels});
  ops::norm_linears(s, in.x, in.norm, eps, a.h,
                    {{w.q, a.qkv.columns(0, channels)},
                     {w.k, a.qkv.columns(channels, channels)},
                     {w.v, a.qkv.columns(2 * channels, channels)},
                     {w.f_a, a.f_rank},
                     {w.b, a.beta},
                     {low_rank_gate ? w.gate_down : w.gate, low_rank_gate ? a.kda_gate_rank : a.kda_gate}});
  if (low_rank_gate)
    ops::linears(s, {{a.f_rank, w.f_b, z}, {a.kda_gate_rank, w.gate, a.kda_gate}});
  else
    ops::linears(s, {{a.f_rank, w.f_b, z}});

  if (s.fuses_steps() && dim <= kKdaDecodeDimMax) {
    ops::kda_decode(s, a.qkv, a.g, a.beta, a.kda_gate, {w.conv, w.a_log, w.dt_bias, w.o_norm}, bound, eps,
                    s.convs(layer.state_index), s.kdas(layer.state_index), a.kda_o);
  } else {
    // A short causal convolution over time; the gates; the recurrence; the output gate acts after the norm.
    ops::short_conv(s, a.qkv, w.conv, s.convs(layer.state_index), a.qkv_conv);  // [tokens, 3 * heads * dim]
    Tensor q = a.qkv_conv.reshape({tokens, 3, heads, dim});
    q.rank = 3, q.dim[1] = heads, q.dim[2] = dim, q.stride[1] = dim, q.stride[2] = 1;
    Tensor k = q, v = q;
    k.data = q.f32() + channels;
    v.data = q.f32() + 2 * channels;
    ops::kda_gate(s, q, k, a.g, a.beta, w.a_log, w.dt_bias, bound);
    ops::kda(s, q, k, v, a.g, a.beta, s.kdas(layer.state_index), a.kda_o);  // [tokens, heads, dim]
    ops::gated_norm(s, a.kda_o, a.kda_gate, w.o_norm, eps, a.kda_o);
  }
  ops::add_linear(s, a.kda_o.reshape({tokens, channels}), w.o, out.addend, a.out, out.y);  // [tokens, hidden]
}

}  // namespace dsa
