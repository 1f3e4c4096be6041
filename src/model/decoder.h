// model/decoder.h: the decoder as a LanguageModel: layers between an embedding and an output head.
#pragma once

#include <map>
#include <memory>

#include "model/blocks.h"
#include "model/language_model.h"
#include "model/residuals.h"
#include "model/vision.h"
#include "model/weights.h"

namespace dsa {

class Decoder final : public LanguageModel {
 public:
  // Memory that the decoder takes at load, beside its weights.
  struct Memories {
    Memory activations;
    Mirror logits;  // [sequences, vocab]
    Mirror tables;  // what the host makes for kernels once
    BatchMemory batch;
    uint64_t bytes = 0;
  };

  Decoder(std::shared_ptr<const ModelConfig> config, std::shared_ptr<const Checkpoint> checkpoint,
          std::unique_ptr<DecoderWeights> weights, Backend& backend, const ModelOptions& options,
          const StateLayout& layout, Memories memories);
  // Makes the tables of kernels and the FP8 workspace; before the first step.
  Status prepare();
  ~Decoder() override;

  int vocab_size() const override { return config_->vocab; }
  const StateLayout& state_layout() const override { return layout_; }
  int max_step_tokens() const override { return options_.max_step_tokens; }
  int max_step_sequences() const override { return options_.max_step_sequences; }
  uint64_t host_bytes() const override;
  uint64_t device_bytes() const override;
  uint64_t fp8_workspace_bytes() const override { return fp8_workspace_bytes_; }
  ExpertCounts expert_counts() const override { return counts_; }
  VisionTower* vision() override { return vision_.get(); }
  Result<Tensor> run(const StepPlan& plan, const PagePool& pool) override;
  bool samples() const override { return backend_.samples(); }
  Status launch(const StepPlan& plan, const PagePool& pool, std::span<const SampleRow> asked) override;
  Result<std::span<const SampledToken>> collect() override;

  // MoE layers whose experts are multiplied as FP8 where they have many rows.
  int fp8_layers() const { return fp8_workspace_ ? fp8_workspace_->layers() : 0; }

  // Called by each step for each latent attention layer, on the thread that runs the step. Empty: nobody
  // looks.
  void observe_selection(SelectionObserver observer) { observer_ = std::move(observer); }

 private:
  Status put(const StepPlan& plan, const PagePool& pool, std::span<const SampleRow> asked);
  void replay(Step& s, uint64_t key);
  bool can_replay(const StepPlan& plan) const;
  uint64_t replay_key(const PagePool& pool) const;
  void forward(Step& s);
  void layer(Step& s, const LayerWeights& w, int number);
  void output(Step& s);
  void fill_tables();

  std::shared_ptr<const ModelConfig> config_;
  std::shared_ptr<const Checkpoint> checkpoint_;  // the weights are views of it
  std::unique_ptr<DecoderWeights> weights_;
  Backend& backend_;
  ModelOptions options_;
  StateLayout layout_;
  const uint64_t serial_;  // among the decoders of the process
  Memories memories_;
  SelectionObserver observer_;
  std::unique_ptr<Activations> activations_;
  Tensor frequencies_;  // [rope_dim / 2]  of the rotary embedding
  int fp8_rows_ = 0;
  std::unique_ptr<Fp8Workspace> fp8_workspace_;
  uint64_t fp8_workspace_bytes_ = 0;
  ExpertCounts counts_;
  std::map<uint64_t, ExpertCounts> counts_of_replays_;  // by their keys
  std::unique_ptr<Residuals> residuals_;
  std::unique_ptr<VisionTower> vision_;
  Batch batch_;
  struct Launch {
    uint64_t mark = 0;
    size_t rows = 0;
  };
  Launch launches_[kLaunchesMax];  // steps on their way, each on the side of the host of its number
  uint64_t launched_ = 0, collected_ = 0;
};

Result<std::unique_ptr<Decoder>> load_decoder(std::shared_ptr<const ModelConfig> config,
                                              std::shared_ptr<const Checkpoint> checkpoint, Backend& backend,
                                              const ModelOptions& options, const LoadProgress& progress);

}  // namespace dsa
