// model/fp8_workspace.h: what products of MXFP4 experts with many rows need: rows that were rounded to FP8, and, for very
// many, the one buffer in which weights are expanded before (kernels/mxfp4_to_fp8).
//
// A part of the experts of a layer goes through that after the other. Its two halves take turns, so that one can be filled
// while the other is read. It serves every layer, so its size does not depend on how many there are. A layer with a row of
// weights whose scales lie too far apart to be exact takes none of this.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "model/activations.h"
#include "model/language_model.h"
#include "model/weights.h"

namespace dsa {

class Fp8Workspace {
 public:
  // What create() allocates; 0 if the model has no layer that could take it.
  static uint64_t bytes(const ModelConfig& config, const DecoderWeights& weights,
                        const ModelOptions& options);
  // Weights lie where kernels read them. Fills the stages of the layers that take it. Null if there are none.
  static Result<std::unique_ptr<Fp8Workspace>> create(const ModelConfig& config, DecoderWeights& weights,
                                                      const Activations& activations,
                                                      const ModelOptions& options, Backend& backend);

  uint8_t* x() const { return x_; }              // codes of the rows of a product
  float* x_scales() const { return x_scales_; }  // one for each
  int layers() const { return layers_; }         // that take it

 private:
  Fp8Workspace() = default;

  Memory memory_;
  Mirror tables_;
  uint8_t* x_ = nullptr;
  float* x_scales_ = nullptr;
  int layers_ = 0;
};

}  // namespace dsa
