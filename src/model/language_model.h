// model/language_model.h: loaded weights that turn a step plan into logits. One thread runs steps at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

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

// Rows that the experts of steps have multiplied; of these, rows that were rounded to FP8.
struct ExpertCounts {
  uint64_t rows = 0, fp8_rows = 0;
};

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int vocab_size() const = 0;
  virtual const StateLayout& state_layout() const = 0;
  virtual int max_step_tokens() const = 0;     // tokens that one step may hold
  virtual int max_step_sequences() const = 0;  // sequences that one step may hold
  virtual uint64_t host_bytes() const = 0;     // memory of its own: activations and converted small tensors
  virtual uint64_t device_bytes() const { return 0; }  // the same where kernels read no memory of the host
  virtual uint64_t fp8_workspace_bytes() const { return 0; }  // part of device_bytes()
  virtual ExpertCounts expert_counts() const { return {}; }
  virtual VisionModel* vision() { return nullptr; }  // null: the model reads text only

  // Runs a plan whose pages are reserved in `pool`. Logits f32 [sequences that want them, vocab], in plan
  // order, valid until the next call. Nothing is committed.
  virtual Result<Tensor> run(const StepPlan& plan, const PagePool& pool) = 0;

  // True if steps can choose their tokens, without the host in between: with launch() and collect() in place of run().
  virtual bool samples() const { return false; }
  // Puts a step on its way. `asked`: one for each sequence that wants logits. A plan whose `tokens` are null takes those
  // that the step before chose, for the same sequences in the same order. The plan is not needed any more on return; its
  // sequences may be committed at once, since steps run in their order. On a failure nothing was launched.
  virtual Status launch(const StepPlan&, const PagePool&, std::span<const SampleRow>) {
    return error(Code::unsupported, "this model does not choose tokens");
  }
  // Waits for the oldest of the steps that were launched and not collected, at most kLaunchesMax: what its sequences
  // chose, valid until the call after the next. A failure means that no step on its way can be used.
  static constexpr int kLaunchesMax = 2;
  virtual Result<std::span<const SampledToken>> collect() {
    return error(Code::unsupported, "this model does not choose tokens");
  }
};

// How the positions of sparse attention are chosen; anything but `learned` is for experiments.
enum class Selection { learned, recent, random };

struct ModelOptions {
  int max_step_tokens = 256;
  int max_step_sequences = 64;
  Route route = Route::fast;
  CacheFormat cache_format = CacheFormat::f32;  // of latents, keys, values and index keys; see StateLayout
  Selection selection = Selection::learned;
  int top_k = 0;           // 0: the model's own
  int rotate_experts = 0;  // experiments: expert e does the work of expert e + n
  bool replay = true;      // decode steps may be recorded and replayed, where the backend can
  // Rows of an expert, on average, from which MXFP4 experts of the fast route are multiplied as FP8; 0: never; -1: what the
  // backend finds worth it.
  int fp8_rows = -1;
  // Of these, from which they are expanded in the FP8 workspace first, rather than within the product; 0: all; -1: what the
  // backend finds faster. Without a step of so many rows there is no room for them.
  int expand_rows = -1;
  uint64_t fp8_workspace_bytes = uint64_t(256) << 20;  // at least two experts fit, whatever this says
  // Experts are expanded beside the product of those before, where the backend can. On an H200 that takes as long as one
  // after the other with parts as small as those of this workspace: the product loses multiprocessors and full rounds of tiles.
  bool overlap = false;
};

// Memory of its own that a loaded model takes beside converted tensors.
uint64_t step_memory_bytes(const ModelConfig& config, const ModelOptions& options);

// Called between reads at most 64 MiB apart; false cancels the load with Code::cancelled.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// What a model takes of the memory of kernels, in bytes, where that is not the memory of the host.
struct ModelSize {
  uint64_t weights = 0;
  uint64_t step = 0;   // activations, logits, tables
  uint64_t page = 0;   // kPageSize positions of one session
  uint64_t state = 0;  // one copy of what a session does not page
  uint64_t host = 0;   // the other side of what both touch
  uint64_t fp8_workspace = 0;
};
// From the headers of the checkpoint alone; refuses what a load would refuse for them. `options` say what fp8_rows and expand_rows
// are.
Result<ModelSize> measure_model(const ModelConfig& config, const Checkpoint& checkpoint,
                                const ModelOptions& options);

// Checks every tensor name, shape and number format that the config asks for, then builds the model on
// `backend`, which it keeps using. Experts stay where they lie in the checkpoint's mapping.
Result<std::unique_ptr<LanguageModel>> load_language_model(std::shared_ptr<const ModelConfig> config,
                                                           std::shared_ptr<const Checkpoint> checkpoint,
                                                           Backend& backend, const ModelOptions& options,
                                                           const LoadProgress& progress);

}  // namespace dsa
