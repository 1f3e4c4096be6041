// kernels/kda_gate/kda_gate.h: what the KDA recurrence takes besides its values.
//
//   q[r, h]    = q[r, h] * rsqrt( sum over d of q^2 + 1e-6 ) * dim^-0.5
//   k[r, h]    = k[r, h] * rsqrt( sum over d of k^2 + 1e-6 )
//   g[r, h, d] = lower_bound * sigmoid( exp(a_log[h]) * (z[r, h, d] + dt_bias[h, d]) )       in (lower_bound, 0)
//              = -exp(a_log[h]) * softplus(z[r, h, d] + dt_bias[h, d])         lower_bound 0: not bounded below
//   beta[r, h] = sigmoid(b[r, h])
//
// softplus(x) = log(1 + exp(x)). f32, all in place: g replaces z and beta replaces b.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct KdaGateArgs {
  float* q;                    // [rows, heads, dim]  in and out
  float* k;                    // [rows, heads, dim]  in and out
  float* g;                    // [rows, heads, dim]  z in, g out
  float* beta;                 // [rows, heads]       b in, beta out
  const float* a_log;          // [heads]  (the tensor may be longer)
  const float* dt_bias;        // [heads, dim]
  int64_t q_stride, k_stride;  // floats from row to row
  int64_t rows;
  int heads, dim;
  float lower_bound;  // negative; 0: the gate of softplus
};
DSA_DECLARE_KERNEL(kda_gate, KdaGateArgs);

}  // namespace dsa
