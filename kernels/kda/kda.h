// kernels/kda/kda.h: the gated delta rule, a linear attention with one state matrix per head.
//
// For each token of a sequence, in order, and each head, with state S [k_dim, v_dim]:
//   S <- diag(exp(g)) S                   row d decays by exp(g[d])
//   u  = beta * (v - S^T k)
//   S <- S + k u^T
//   o  = S^T q
//
// kda_step   one token a sequence: the recurrence itself.
// kda_chunk  many tokens: within a chunk, at most 64 tokens, the updates become a triangular system and products of small
//            matrices. Every exponent that reaches exp is at most 0, or bounded inside a run of 16 tokens.
//            A run in which a channel decays by more than that goes token by token, as in kda_step.
// f32 state and sums; g at most 0. The fast route of GPUs drops what is below 2^-17 of a factor, in kda_chunk. Within
// kKdaMaxDecay per token a run of 16 always fits (16 * 5.0625 = 81 < 88.7 = log of the largest f32). The result does not
// depend on how a sequence is cut into steps beyond rounding.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr float kKdaMaxDecay = 5.0625f;

struct KdaSequence {
  int row_begin, rows;  // of q, k, v, g, beta, o
  const float* state;   // [heads, k_dim, v_dim]
  float* next_state;    // [heads, k_dim, v_dim]  output; may not be state
};

struct KdaArgs {
  const float* q;                        // [rows, heads, k_dim]  normalised and scaled
  const float* k;                        // [rows, heads, k_dim]  normalised
  const float* v;                        // [rows, heads, v_dim]
  const float* g;                        // [rows, heads, k_dim]  log decay
  const float* beta;                     // [rows, heads]
  float* o;                              // [rows, heads, v_dim]  output
  const KdaSequence* sequences;          // [num_sequences]
  int64_t q_stride, k_stride, v_stride;  // floats from row to row; g, beta and o are dense
  int num_sequences, heads, k_dim, v_dim;
  int rows = 0;  // of all sequences together, or more; GPUs go token by token if nobody says
  Route route = Route::exact;
};
DSA_DECLARE_KERNEL(kda_step, KdaArgs);   // every sequence has one row
DSA_DECLARE_KERNEL(kda_chunk, KdaArgs);  // any number of rows
namespace cuda {
void kda_by_token(const KdaArgs&, Queue&);  // the same, as kda_step does it
}

}  // namespace dsa
