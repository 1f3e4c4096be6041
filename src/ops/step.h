// ops/step.h: one pass over a batch: its rows, where they belong, and the backend that computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/tensor.h"
#include "kernels/linears/linears.h"
#include "state/page_pool.h"
#include "state/sequence_state.h"
#include "state/step_plan.h"

namespace dsa {

struct Activations;  // of the model; operators do not look inside

// The tokens of a plan as rows, sequence after sequence. Reused from step to step; it allocates only to grow.
struct Batch {
  int tokens = 0, sequences = 0, max_pages = 0, max_visible = 0;
  int context = 0;  // at least max_visible: what rows of scores have room for
  std::vector<int32_t> token_ids, positions, visible, sequence_of;  // [tokens]
  std::vector<int32_t> row_begin;                                   // [sequences + 1]
  std::vector<int32_t> block_tables;                                // [sequences, max_pages]
  std::vector<int32_t> logit_rows;                                  // rows whose logits are wanted
  std::vector<PlacedRun> placed;                                    // where rows stand in for embeddings
  std::vector<SampleRow> asked;  // of the rows whose logits are wanted; empty: the step chooses no tokens
  bool continues = false;        // the step before chose the tokens; token_ids are not those
  // The state of each sequence, as committed and as this step leaves it.
  std::vector<ShortConvSequence> convs;  // [kda_layers, sequences]
  std::vector<KdaSequence> kdas;         // [kda_layers, sequences]
  std::vector<PoolSequence> pools;       // [index_layers, sequences]

  // `hidden`: floats of a placed row. `pages_max` above 0: max_pages and context grow in powers of two up to that many
  // pages, so that steps of growing sequences look alike.
  void set(const StepPlan& plan, const StateLayout& layout, int hidden, int pages_max = 0,
           std::span<const SampleRow> asked = {});
};

// A batch where kernels read it.
struct BatchView {
  const int32_t *token_ids = nullptr, *positions = nullptr, *visible = nullptr, *sequence_of = nullptr;
  const int32_t *block_tables = nullptr, *logit_rows = nullptr;
  const PlacedRun* placed = nullptr;
  const ShortConvSequence* convs = nullptr;
  const KdaSequence* kdas = nullptr;
  const PoolSequence* pools = nullptr;
  const SampleRow* asked = nullptr;
  SampledToken* sampled = nullptr;
  int32_t* next_token_ids = nullptr;  // those of a step that continues this one
};

// Room for the largest batch on both sides; one upload brings all of it to the kernels. The host has two sides, for two steps
// on their way.
class BatchMemory {
 public:
  struct Limits {
    int tokens, sequences, pages;  // pages of one sequence
    int placed_dim;                // 0: no row is ever placed
  };
  static uint64_t bytes(const Limits& limits, const StateLayout& layout);
  static Result<BatchMemory> create(const Limits& limits, const StateLayout& layout, Storage& storage);

  // The side of the host, 0 or 1, is free again when the step has ended; placed rows lie in one place for both.
  BatchView publish(const Batch& batch, Storage& storage, int side = 0);
  // Brings what the step chose to a side of the host.
  void fetch_sampled(const Batch& batch, Storage& storage, int side);
  std::span<const SampledToken> sampled(int side, size_t rows) const {
    return {static_cast<const SampledToken*>(sampled_[side].host.get()), rows};
  }

 private:
  Mirror arrays_[2], sampled_[2];  // the arrays of a batch, one after the other; the tokens that it chose
  Mirror rows_;                    // placed rows
  int placed_dim_ = 0;
};

// Room for the activations that products on the fast route round.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

class Step {
 public:
  Step(Backend& backend, const PagePool& pool, const Batch& batch, const BatchView& view,
       Activations& activations, Route route, Workspace workspace)
      : backend_(backend),
        pool_(&pool),
        batch_(&batch),
        view_(view),
        activations_(&activations),
        route_(route),
        workspace_(workspace) {}
  // A pass without sequences, on the exact route: operators that ask for the batch or its pages have nothing to do
  // here.
  explicit Step(Backend& backend) : backend_(backend) {}

  const KernelTable& kernels() const { return backend_.kernels(); }
  Queue& queue() { return backend_.queue(); }
  Queue& side() { return backend_.side(); }
  void follow(Queue& queue, Queue& first) { backend_.follow(queue, first); }
  Storage& storage() { return backend_.storage(); }
  const Batch& batch() const { return DSA_ASSERT(batch_), *batch_; }
  // The arrays of the batch for the arguments of kernels.
  const BatchView& view() const { return DSA_ASSERT(batch_), view_; }
  Activations& activations() { return DSA_ASSERT(activations_), *activations_; }
  int tokens() const { return batch().tokens; }
  Route route() const { return route_; }
  Workspace workspace() const { return workspace_; }
  // Whether an operator of `rows` rows is better off with others in one launch.
  bool fuses(int64_t rows) const { return backend_.fuses() && rows <= kLinearsRowsMax; }
  // Whether every sequence has one row, and the backend has steps of that kind in one launch.
  bool fuses_steps() const { return backend_.fuses() && batch().tokens == batch().sequences; }

  // The paged rows of one layer.
  PagedRows latents(int layer) const { return pool_->latents(layer, view().block_tables, batch().max_pages); }
  PagedRows keys(int layer) const { return pool_->keys(layer, view().block_tables, batch().max_pages); }
  PagedRows values(int layer) const { return pool_->values(layer, view().block_tables, batch().max_pages); }
  PagedRows index_keys(int layer) const {
    return pool_->index_keys(layer, view().block_tables, batch().max_pages);
  }
  // The sequences of one KDA layer, and of one indexer with pools.
  const ShortConvSequence* convs(int kda_layer) const {
    return view().convs + int64_t(kda_layer) * batch().sequences;
  }
  const KdaSequence* kdas(int kda_layer) const {
    return view().kdas + int64_t(kda_layer) * batch().sequences;
  }
  const PoolSequence* pools(int index_layer) const {
    return view().pools + int64_t(index_layer) * batch().sequences;
  }

 private:
  Backend& backend_;
  const PagePool* pool_ = nullptr;
  const Batch* batch_ = nullptr;
  BatchView view_;
  Activations* activations_ = nullptr;
  Route route_ = Route::exact;
  Workspace workspace_;
};

}  // namespace dsa
