// model/vision.h: the tower that turns pictures into rows that stand in for token embeddings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "base/status.h"
#include "base/tensor.h"
#include "io/picture.h"
#include "model/vision_input.h"
#include "model/weights.h"

namespace dsa {

// Pictures on their way through the tower.
class VisionPass {
 public:
  virtual ~VisionPass() = default;

  // The next slice of work, a few hundred patches of one block of the tower; true once the features are ready.
  // Allocates nothing.
  virtual Result<bool> advance() = 0;
  // f32 [tokens, hidden of the text], picture after picture, row-major over each merged grid. Valid once advance() has
  // returned true, as long as the pass.
  virtual Tensor features() const = 0;
};

class VisionModel {
 public:
  virtual ~VisionModel() = default;

  virtual PictureShape shape(int width, int height) const = 0;
  // Resizes the pictures, which are not looked at afterwards, and takes all memory of the pass: out_of_memory if there
  // is none. Pictures of different sizes may share a pass. The model outlives it.
  virtual Result<std::unique_ptr<VisionPass>> begin(std::span<const Picture* const> pictures) = 0;
  // Host memory that a pass over pictures of these shapes takes. A resize takes some more for its time; once the
  // features are ready only they remain.
  virtual uint64_t pass_bytes(std::span<const PictureShape> shapes) const = 0;
};

// Sees all patches, [patches, hidden]: "embedded" before the first block, "tower" behind the last norm. Of a gated
// projector also "downsampled", the tokens of one slice.
using VisionObserver = std::function<void(const char* stage, const Tensor& x)>;

class VisionTower final : public VisionModel {
 public:
  // Refers to its arguments.
  VisionTower(const ModelConfig& config, const VisionWeights& weights, Backend& backend)
      : config_(config), weights_(weights), backend_(backend) {}

  PictureShape shape(int width, int height) const override {
    return picture_shape(config_.vision, width, height);
  }
  Result<std::unique_ptr<VisionPass>> begin(std::span<const Picture* const> pictures) override;
  uint64_t pass_bytes(std::span<const PictureShape> shapes) const override;

  // Called on the thread that advances. Empty: nobody looks.
  void observe(VisionObserver observer) { observer_ = std::move(observer); }

 private:
  friend class TowerPass;

  const ModelConfig& config_;
  const VisionWeights& weights_;
  Backend& backend_;
  VisionObserver observer_;
};

}  // namespace dsa
