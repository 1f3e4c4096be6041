// model/language_model.h: loaded weights that turn a step plan into logits. One thread runs steps at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "base/status.h"
#include "base/tensor.h"
#include "io/checkpoint.h"
#include "model/model_config.h"
#include "state/page_pool.h"
#include "state/sequence_state.h"
#include "state/step_plan.h"

namespace dsa {

class VisionModel;

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int vocab_size() const = 0;
  virtual const StateLayout& state_layout() const = 0;
  virtual int max_step_tokens() const = 0;     // tokens that one step may hold
  virtual int max_step_sequences() const = 0;  // sequences that one step may hold
  virtual uint64_t host_bytes() const = 0;     // memory of its own: activations and converted small tensors
  virtual VisionModel* vision() { return nullptr; }  // null: the model reads text only

  // Runs a plan whose pages are reserved in `pool`. Logits f32 [sequences that want them, vocab], in plan
  // order, valid until the next call. Nothing is committed.
  virtual Result<Tensor> run(const StepPlan& plan, const PagePool& pool) = 0;
};

// How the positions of sparse attention are chosen; anything but `learned` is for experiments.
enum class Selection { learned, recent, random };

struct ModelOptions {
  int max_step_tokens = 256;
  int max_step_sequences = 64;
  Route route = Route::fast;
  Selection selection = Selection::learned;
  int top_k = 0;           // 0: the model's own
  int rotate_experts = 0;  // experiments: expert e does the work of expert e + n
};

// Memory of its own that a loaded model takes beside converted tensors.
uint64_t step_memory_bytes(const ModelConfig& config, const ModelOptions& options);

// Called between reads at most 64 MiB apart; false cancels the load with Code::cancelled.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Checks every tensor name, shape and number format that the config asks for, then builds the model on
// `backend`, which it keeps using. Experts stay where they lie in the checkpoint's mapping.
Result<std::unique_ptr<LanguageModel>> load_language_model(std::shared_ptr<const ModelConfig> config,
                                                           std::shared_ptr<const Checkpoint> checkpoint,
                                                           Backend& backend, const ModelOptions& options,
                                                           const LoadProgress& progress);

}  // namespace dsa
