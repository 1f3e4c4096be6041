// kernels/hyper_connection/hyper_connection.h: a residual stream in n copies that blocks read and write through mixes
// computed from the streams themselves (manifold-constrained hyper-connections).
//
//   hyper_spread   x[t, k] = y[t]                                        the embedding in each stream
//
//   hyper_mix      u = x[t] as one row of n * dim;  m = logits[t] / sqrt(mean(u^2) + norm_eps)
//                  pre_k  = sigmoid( m[k] scale[0] + base[k] ) + eps
//                  post_k = 2 sigmoid( m[n + k] scale[1] + base[n + k] )
//                  Z_jk   = m[2 n + n j + k] scale[2] + base[2 n + n j + k]
//                  C      = softmax over k of each row of Z, + eps; columns divided by (their sum + eps); then
//                           (iterations - 1) times: rows divided by (their sum + eps), columns likewise
//                  y[t]   = sum over k of  pre_k x[t, k];  coefficients[t] = post, then C row by row
//
//   hyper_add      x[t, k] = post_k y[t] + sum over j of  C_jk x[t, j]   all from the old x: j is the source stream
//
//   hyper_mean     y[t] = mean over k of  x[t, k]
//
// logits = F u, with F [(2 + n) n, n * dim], is a linear before. f32; the coefficients of a token depend on the token
// alone.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

constexpr int kHyperStreamsMax = 8;

struct HyperMixArgs {
  const float* x;       // [tokens, streams, dim]
  const float* logits;  // [tokens, (2 + streams) * streams]
  const float* base;    // [(2 + streams) * streams]
  const float* scale;   // [3]
  float* y;             // [tokens, dim]  output
  float* coefficients;  // [tokens, (1 + streams) * streams]  output
  int64_t tokens;
  int streams, dim, iterations;  // streams at most kHyperStreamsMax, iterations at least 1
  float norm_eps, eps;
};
DSA_DECLARE_KERNEL(hyper_mix, HyperMixArgs);

struct HyperAddArgs {
  float* x;                   // [tokens, streams, dim]  input and output
  const float* y;             // [tokens, dim]
  const float* coefficients;  // [tokens, (1 + streams) * streams]
  int64_t tokens;
  int streams, dim;
};
DSA_DECLARE_KERNEL(hyper_add, HyperAddArgs);

struct HyperSpreadArgs {
  const float* y;  // [tokens, dim]
  float* x;        // [tokens, streams, dim]  output
  int64_t tokens;
  int streams, dim;
};
DSA_DECLARE_KERNEL(hyper_spread, HyperSpreadArgs);

struct HyperMeanArgs {
  const float* x;  // [tokens, streams, dim]
  float* y;        // [tokens, dim]  output
  int64_t tokens;
  int streams, dim;
};
DSA_DECLARE_KERNEL(hyper_mean, HyperMeanArgs);

}  // namespace dsa
