#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// The first rows and `dim` columns of a buffer that other blocks use with other widths.
Tensor narrow(const Tensor& buffer, int64_t rows, int64_t dim) {
  return Tensor(buffer.data, DType::f32, {rows, dim});
}

}  // namespace

void mlp(Step& s, const BlockContext& c, const MlpWeights& w, const BlockInput& in, const BlockOutput& out) {
  Activations& a = s.activations();
  const Tensor gate = narrow(a.mlp_gate, in.x.dim[0], w.gate.dim[0]),
               up = narrow(a.mlp_up, in.x.dim[0], w.gate.dim[0]);

  ops::norm_linears(s, in.x, in.norm, c.config.norm_eps, a.h, {{w.gate, gate}, {w.up, up}});  // [tokens, dim]
  ops::gated_linear(s, gate, up, c.config.mlp.activation, w.down, out.addend, a.out, out.y);
}

}  // namespace dsa
