// kernels/kda_decode/kda_decode_ref.cc: the four operators, one after the other.
#include <algorithm>
#include <vector>

#include "kernels/gated_norm/gated_norm.h"
#include "kernels/kda_decode/kda_decode.h"
#include "kernels/kda_gate/kda_gate.h"

namespace dsa {

void ref::kda_decode(const KdaDecodeArgs& a, Queue& queue) {
  const int channels = a.heads * a.dim;
  int rows = 0;  // that may be read
  for (int i = 0; i < a.num_sequences; ++i) rows = std::max(rows, a.sequences[i].row_begin + 1);
  std::vector<float> qkv(size_t(rows) * 3 * channels), g(a.z, a.z + size_t(rows) * channels),
      beta(a.b, a.b + size_t(rows) * a.heads), o(size_t(rows) * channels);
  ref::short_conv({a.qkv, a.conv_weight, qkv.data(), a.convs, a.qkv_stride, 3 * channels, a.num_sequences,
                   3 * channels, a.width},
                  queue);
  float *q = qkv.data(), *k = q + channels, *v = k + channels;
  ref::kda_gate({q, k, g.data(), beta.data(), a.a_log, a.dt_bias, 3 * channels, 3 * channels, rows, a.heads,
                 a.dim, a.lower_bound},
                queue);
  ref::kda_step({q, k, v, g.data(), beta.data(), o.data(), a.sequences, 3 * channels, 3 * channels,
                 3 * channels, a.num_sequences, a.heads, a.dim, a.dim},
                queue);
  for (int i = 0; i < a.num_sequences; ++i) {
    const size_t row = size_t(a.sequences[i].row_begin) * channels;
    ref::gated_norm({&o[row], a.gate + row, a.norm, a.o + row, 1, a.heads, a.dim, a.eps}, queue);
  }
}

}  // namespace dsa
