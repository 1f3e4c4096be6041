#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// The first rows and `dim` columns of a buffer that other blocks use with other widths.
Tensor narrow(const Tensor& buffer, int64_t rows, int64_t dim) {
  return Tensor(buffer.data, DType::f32, {rows, dim});
}

}  // namespace

void mlp(Step& s, const BlockContext& c, const MlpWeights& w, Tensor h, Tensor out) {
  Activations& a = s.activations();
  const Tensor gate = narrow(a.mlp_gate, h.dim[0], w.gate.dim[0]),
               up = narrow(a.mlp_up, h.dim[0], w.gate.dim[0]);

  ops::linear(s, h, w.gate, gate);  // [tokens, dim]
  ops::linear(s, h, w.up, up);      // [tokens, dim]
  ops::activation(s, gate, up, c.config.mlp.activation, gate);
  ops::linear(s, gate, w.down, out);  // [tokens, hidden]
}

}  // namespace dsa
