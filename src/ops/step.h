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
  std::vector<PlacedRun> placed;                                    // where rows stand in for embeddings

  // `hidden`: floats of a placed row.
  void set(const StepPlan& plan, int hidden);
};

// Room for the activations that products on the fast route round.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

class Step {
 public:
  Step(Backend& backend, const PagePool& pool, const Batch& batch, Activations& activations, Route route,
       Workspace workspace)
      : kernels_(backend.kernels()),
        queue_(backend.queue()),
        pool_(&pool),
        batch_(&batch),
        activations_(&activations),
        route_(route),
        workspace_(workspace) {}
  // A pass without sequences, on the exact route: operators that ask for the batch or its pages have nothing to do
  // here.
  explicit Step(Backend& backend) : kernels_(backend.kernels()), queue_(backend.queue()) {}

  const KernelTable& kernels() const { return kernels_; }
  Queue& queue() { return queue_; }
  const Batch& batch() const { return DSA_ASSERT(batch_), *batch_; }
  Activations& activations() { return DSA_ASSERT(activations_), *activations_; }
  int tokens() const { return batch().tokens; }
  Route route() const { return route_; }
  Workspace workspace() const { return workspace_; }

  // The paged rows of one layer.
  PagedRows latents(int layer) const {
    return pool_->latents(layer, batch().block_tables.data(), batch().max_pages);
  }
  PagedRows keys(int layer) const {
    return pool_->keys(layer, batch().block_tables.data(), batch().max_pages);
  }
  PagedRows values(int layer) const {
    return pool_->values(layer, batch().block_tables.data(), batch().max_pages);
  }
  PagedRows index_keys(int layer) const {
    return pool_->index_keys(layer, batch().block_tables.data(), batch().max_pages);
  }

 private:
  const KernelTable& kernels_;
  Queue& queue_;
  const PagePool* pool_ = nullptr;
  const Batch* batch_ = nullptr;
  Activations* activations_ = nullptr;
  Route route_ = Route::exact;
  Workspace workspace_;
};

}  // namespace dsa
