// model/activations.h: every intermediate tensor of a step, allocated once for the largest step.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/tensor.h"
#include "model/model_config.h"
#include "model/room.h"
#include "ops/step.h"

namespace dsa {

struct Activations {
  // For `tokens` rows and `sequences` sequences of the model. The logits lie elsewhere.
  Activations(const ModelConfig& config, int tokens, int sequences, Room& room);
  // The tensors below as views of the first `tokens` rows.
  void set_tokens(int tokens);

  // Residual stream.
  Tensor x, h, out;           // [tokens, hidden]  block input, its norm, block output
  std::vector<Tensor> banks;  // [tokens, hidden] each: sources of attention residuals, the running sum last
  const float* const* sources = nullptr;  // [banks]  where they lie
  Tensor streams;                         // [tokens, streams, hidden]  of hyper-connections
  Tensor hyper_logits;                    // [tokens, mixes]
  Tensor hyper_coefficients;              // [tokens, coefficients]
  Tensor running;                         // [tokens, hidden]  sum of the blocks, if there are no banks
  Tensor kept;  // [sequences, streams * hidden]  rows that go on behind the last attention

  // KDA.
  Tensor qkv, qkv_conv;  // [tokens, 3 * heads * dim]  before and after the convolution
  Tensor f_rank;         // [tokens, rank]
  Tensor g;              // [tokens, heads, dim]  log decay
  Tensor beta;           // [tokens, heads]
  Tensor kda_o;          // [tokens, heads, dim]
  Tensor kda_gate;       // [tokens, heads * dim]
  Tensor kda_gate_rank;  // [tokens, dim]  of a low-rank output gate

  // Latent attention.
  Tensor q_rank;    // [tokens, q_rank]
  Tensor q;         // [tokens, heads, nope + rope]
  Tensor q_latent;  // [tokens, heads, latent]
  Tensor kv;        // [tokens, latent + rope]
  Tensor o_latent;  // [tokens, heads, latent]
  Tensor o;         // [tokens, heads, v_dim]
  Tensor gate;      // [tokens, heads * v_dim]

  // Grouped attention.
  Tensor gqa_q, gqa_o;  // [tokens, heads, dim]
  Tensor gqa_k, gqa_v;  // [tokens, kv_heads * dim]

  // Indexer.
  Tensor index_q;        // [tokens, index heads, index dim]
  Tensor index_k;        // [tokens, index dim]
  Tensor index_weights;  // [tokens, index heads]
  Tensor index_gates;    // [tokens, index dim]  of pools
  Tensor pools_visible;  // [tokens]  i32
  Tensor pools;          // [tokens, top_k / group]  i32: the selected ones
  Tensor selected;       // [tokens, slots]  i32
  Tensor guesses;  // [index layers, sequences]  i32: what a step of decode leaves for the next; see top_k.h
  Tensor index_scores;  // [kScoreFloats]  as many rows at a time as fit

  // Feed-forward.
  Tensor router_logits;                        // [tokens, experts]
  Tensor expert_ids;                           // [tokens, experts per token]  i32
  Tensor expert_weights;                       // [tokens, experts per token]
  Tensor offsets;                              // [experts + 1]  i32
  Tensor pairs, rows;                          // [tokens * experts per token]  i32
  Tensor latent;                               // [tokens, latent]  what the experts read; later their sum
  Tensor expert_x, expert_y;                   // [tokens * experts per token, latent or hidden]
  Tensor expert_gate, expert_up;               // [tokens * experts per token, expert dim]
  Tensor expert_gate_up;                       // [tokens * experts per token, 2 * expert dim]  in turns
  Tensor mlp_gate, mlp_up;                     // [tokens, dense or shared dim]
  Workspace workspace;                         // of linear and mxfp4_linear, largest inputs included
  Mxfp4LinearGroup* mxfp4_groups = nullptr;    // [max_groups]
  ExpertLinearGroup* linear_groups = nullptr;  // [max_groups]  for experts that are not MXFP4
  int max_groups = 0;                          // two for each expert that may have rows

 private:
  static constexpr int64_t kScoreFloats = int64_t(8) << 20;  // 32 MiB, touched as far as it is used

  int experts_per_token_;
};

}  // namespace dsa
