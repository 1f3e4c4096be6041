// model/residuals.h: how the outputs of blocks flow on to later blocks.
//
// Attention residuals: a block reads a softmax mix of banked sources and the running sum. The running sum is
// banked, raw, every `block` layers and then starts anew.
// Plain residuals: a block reads the running sum, and its output is added to it.
// Hyper-connections: a block reads a mix of streams, and writes its output back while the streams mix.
#pragma once

#include <memory>
#include <vector>

#include "model/activations.h"
#include "model/weights.h"

namespace dsa {

// One for all steps of a decoder; begin() starts a step anew. What it returns lives until the next call.
class Residuals {
 public:
  virtual ~Residuals() = default;

  // The embeddings of the step stand in `running`.
  virtual void begin(Step& s) = 0;
  // What the attention of a layer reads, before its norm; then what its feed-forward block reads.
  virtual const Tensor& attention_input(Step& s, const LayerWeights& w, int layer) = 0;
  virtual const Tensor& mlp_input(Step& s, const LayerWeights& w) = 0;
  // Where the block that read last may add its output itself; null: add() takes it.
  virtual Tensor sum(Step&) { return {}; }
  virtual void add(Step& s, const Tensor& y) = 0;
  // Brings the rows whose logits are wanted to the front: of the last layer nothing else is read any more.
  virtual void keep(Step& s) = 0;
  // What the final norm reads.
  virtual const Tensor& output(Step& s, const DecoderWeights& w) = 0;
};

std::unique_ptr<Residuals> create_residuals(const ModelConfig& config);

}  // namespace dsa
