// ops/step.h: one pass over a batch: its rows, where they belong, and the backend that computes them.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/tensor.h"
#include "state/page_pool.h"
#include "state/sequence_state.h"
#include "state/step_plan.h"

namespace dsa {

struct Activations;  // of the model; operators do not look inside

// The tokens of a plan as rows, sequence after sequence. Reused from step to step; it allocates only to grow.
struct Batch {
  int tokens = 0, sequences = 0, max_pages = 0, max_visible = 0;
  std::vector<int32_t> token_ids, positions, visible, sequence_of;  // [tokens]
  std::vector<int32_t> row_begin;                                   // [sequences + 1]
  std::vector<int32_t> block_tables;                                // [sequences, max_pages]
  std::vector<int32_t> logit_rows;                                  // rows whose logits are wanted
  std::vector<SequenceState*> states;                               // [sequences]

  void set(const StepPlan& plan);
};

class Step {
 public:
  Step(Backend& backend, const PagePool& pool, const Batch& batch, Activations& activations)
      : kernels_(backend.kernels()),
        queue_(backend.queue()),
        pool_(pool),
        batch_(batch),
        activations_(activations) {}

  const KernelTable& kernels() const { return kernels_; }
  Queue& queue() { return queue_; }
  const Batch& batch() const { return batch_; }
  Activations& activations() { return activations_; }
  int tokens() const { return batch_.tokens; }

  // The paged rows of one layer.
  PagedRows latents(int layer) const {
    return pool_.latents(layer, batch_.block_tables.data(), batch_.max_pages);
  }
  PagedRows index_keys(int layer) const {
    return pool_.index_keys(layer, batch_.block_tables.data(), batch_.max_pages);
  }

 private:
  const KernelTable& kernels_;
  Queue& queue_;
  const PagePool& pool_;
  const Batch& batch_;
  Activations& activations_;
};

}  // namespace dsa
