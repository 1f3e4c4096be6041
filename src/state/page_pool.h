// state/page_pool.h: the pages of all sessions of a model, taken whole for a step or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/storage.h"
#include "base/status.h"
#include "state/state_layout.h"
#include "state/step_plan.h"

namespace dsa {

class PagePool;

// The pages that a step took. What is not committed returns to the pool.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation();

  // The step of one sequence becomes visible: its length grows and its next state becomes the present one.
  void commit(size_t sequence);
  void commit();  // of all
  // The pages of one sequence return to the pool now: its step will not become visible, though it may still run.
  void drop(size_t sequence);

 private:
  friend class PagePool;
  struct Item {
    SequenceState* state;
    int tokens;
    size_t old_pages;
    bool settled;  // committed or dropped
  };

  explicit Reservation(PagePool* pool) : pool_(pool) {}

  PagePool* pool_;
  std::vector<Item> items_;
};

class PagePool {
 public:
  // Takes the memory of all pages, and of `num_states` copies of what is not paged, the most there will be; 0: each is
  // allocated when it is asked for.
  static Result<std::unique_ptr<PagePool>> create(const StateLayout& layout, int64_t num_pages,
                                                  int64_t num_states = 0, Storage& storage = host_storage());
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const StateLayout& layout() const { return layout_; }
  Storage& storage() const { return storage_; }
  int64_t num_pages() const { return num_pages_; }
  int64_t free_pages() const;
  uint64_t used_bytes() const;

  // Every page that the step needs, or none: context_full names the sequence's room in tokens, out_of_memory the
  // pool's in bytes. Also makes room for the state of sequences that start.
  Result<Reservation> reserve(const StepPlan& plan);

  // Latents, keys, values or index keys of one layer, as kernels see them.
  PagedRows latents(int layer, const int32_t* block_tables, int max_pages) const;
  PagedRows keys(int layer, const int32_t* block_tables, int max_pages) const;
  PagedRows values(int layer, const int32_t* block_tables, int max_pages) const;
  PagedRows index_keys(int layer, const int32_t* block_tables, int max_pages) const;

 private:
  friend class Reservation;
  friend class SequenceState;

  PagePool(const StateLayout& layout, int64_t num_pages, Storage& storage)
      : layout_(layout), storage_(storage), num_pages_(num_pages) {}
  void give_back(std::vector<int32_t>& pages, size_t keep);
  PagedRows rows(size_t offset, const int32_t* block_tables, int max_pages, int dim,
                 int page_rows) const;  // not latents
  // One copy of what is not paged; it may outlive the pool.
  Result<Memory> take_state();

  StateLayout layout_;
  Storage& storage_;
  int64_t num_pages_;
  Memory memory_;
  struct States;
  std::shared_ptr<States> states_;
  mutable std::mutex mutex_;
  std::vector<int32_t> free_;  // the last one is taken first
  std::vector<Reservation::Item>
      spare_items_;  // of the last reservation, so that a decode step allocates nothing
};

}  // namespace dsa
