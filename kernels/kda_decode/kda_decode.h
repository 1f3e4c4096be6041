// kernels/kda_decode/kda_decode.h: one token of a KDA layer, from the projections to what the output projection reads.
//
//   q, k, v  = short_conv(qkv, conv_weight, convs)                  q, k, v of head h: channels h * dim + d of each third
//   q, k, g, beta = kda_gate(q, k, z, b, a_log, dt_bias, lower_bound)
//   o        = kda_step(q, k, v, g, beta, sequences)
//   o        = gated_norm(o, gate, norm, eps)
//
// Every sequence has one row, the same in `convs` and `sequences`. Formulas, precision and edges are those of the four
// operators; only the order of sums is free. The states that are read are older than the step: no operator of the step has
// written them.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/kda/kda.h"
#include "kernels/short_conv/short_conv.h"

namespace dsa {

constexpr int kKdaDecodeDimMax = 128;

struct KdaDecodeArgs {
  const float* qkv;                // [rows, 3 * heads * dim]
  const float* conv_weight;        // [3 * heads * dim, width]
  const float* z;                  // [rows, heads, dim]
  const float* b;                  // [rows, heads]
  const float* a_log;              // [heads]
  const float* dt_bias;            // [heads, dim]
  const float* gate;               // [rows, heads, dim]
  const float* norm;               // [dim]
  const ShortConvSequence* convs;  // [num_sequences]
  const KdaSequence* sequences;    // [num_sequences]
  float* o;                        // [rows, heads, dim]  output
  int64_t qkv_stride;              // floats from row to row; the others are dense
  int num_sequences, heads, dim, width;
  float lower_bound, eps;
};
DSA_DECLARE_KERNEL(kda_decode, KdaDecodeArgs);

}  // namespace dsa
