// model/blocks.h: the building blocks of a decoder layer.
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
  int fp8_rows;                       // of an expert, on average, from which its rows become FP8
  ExpertCounts& counts;
};

// What a block reads: rows of the residual stream, [tokens, hidden], and the norm in front of the block. Its first operator
// puts the normed rows into Activations::h.
struct BlockInput {
  Tensor x, norm;
};
// Where its output goes, [tokens, hidden]: y = addend + output. A null addend: y is Activations::out, and the output alone.
// Else that is free for the block.
struct BlockOutput {
  Tensor y, addend;
};

void kda(Step& s, const BlockContext& c, const LayerWeights& w, const BlockInput& in, const BlockOutput& out);
void latent_attention(Step& s, const BlockContext& c, const LayerWeights& w, int layer, const BlockInput& in,
                      const BlockOutput& out);
void grouped_attention(Step& s, const BlockContext& c, const LayerWeights& w, const BlockInput& in,
                       const BlockOutput& out);
// The positions that each token attends to; null: all that it sees.
Tensor indexer(Step& s, const BlockContext& c, const IndexerWeights& w, int index_layer, Tensor q_rank,
               Tensor h);
void mlp(Step& s, const BlockContext& c, const MlpWeights& w, const BlockInput& in, const BlockOutput& out);
void moe(Step& s, const BlockContext& c, const MoeWeights& w, const BlockInput& in, const BlockOutput& out);

}  // namespace dsa
