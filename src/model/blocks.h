// model/blocks.h: the building blocks of a decoder layer. Each reads `h` and writes `out`, [tokens, hidden].
#pragma once

#include "model/activations.h"
#include "model/fp8_workspace.h"
#include "model/language_model.h"
#include "model/weights.h"
#include "ops/step.h"

namespace dsa {

// Sees which positions a layer selected: [tokens, top_k] i32, null where every visible position is.
using SelectionObserver = std::function<void(int layer, const Batch& batch, const Tensor& selected)>;

// What a block needs to know beside weights.
struct BlockContext {
  const ModelConfig& config;
  const ModelOptions& options;
  const SelectionObserver& observer;
  const Tensor& frequencies;          // [rope_dim / 2]  of the rotary embedding
  const Fp8Workspace* fp8_workspace;  // null: there is none
  int fp8_rows;                       // of an expert, on average, from which it is taken
};

void kda(Step& s, const BlockContext& c, const LayerWeights& w, Tensor h, Tensor out);
void latent_attention(Step& s, const BlockContext& c, const LayerWeights& w, int layer, Tensor h, Tensor out);
void grouped_attention(Step& s, const BlockContext& c, const LayerWeights& w, Tensor h, Tensor out);
// The positions that each token attends to; null: all that it sees.
Tensor indexer(Step& s, const BlockContext& c, const IndexerWeights& w, int index_layer, Tensor q_rank,
               Tensor h);
void mlp(Step& s, const BlockContext& c, const MlpWeights& w, Tensor h, Tensor out);
void moe(Step& s, const BlockContext& c, const MoeWeights& w, Tensor h, Tensor out);

}  // namespace dsa
