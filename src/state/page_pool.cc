#include "state/page_pool.h"

#include <utility>

#include "state/sequence_state.h"

namespace dsa {

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), items_(std::move(other.items_)) {}

Reservation::~Reservation() {
  if (pool_ == nullptr) return;
  for (Item& item : items_)
    if (!item.settled) pool_->give_back(item.state->pages_, item.old_pages);
  items_.clear();
  const std::lock_guard lock(pool_->mutex_);
  if (items_.capacity() > pool_->spare_items_.capacity()) pool_->spare_items_.swap(items_);
}

void Reservation::commit(size_t sequence) {
  Item& item = items_[sequence];
  if (item.settled) return;
  item.settled = true;
  item.state->length_ += item.tokens;
  item.state->current_ = 1 - item.state->current_;
}

void Reservation::commit() {
  for (size_t i = 0; i < items_.size(); ++i) commit(i);
}

void Reservation::drop(size_t sequence) {
  Item& item = items_[sequence];
  if (item.settled) return;
  item.settled = true;
  pool_->give_back(item.state->pages_, item.old_pages);
}

// Copies of what is not paged that were allocated together, as long as one of them is in use.
struct PagePool::States {
  Memory memory;
  std::mutex mutex;
  std::vector<void*> free;
  int64_t count = 0;
};

Result<std::unique_ptr<PagePool>> PagePool::create(const StateLayout& layout, int64_t num_pages,
                                                   int64_t num_states, Storage& storage) {
  if (num_pages < 1 || num_pages > INT32_MAX)
    return error(Code::argument, "a page pool of ", num_pages, " pages; expected 1 to ", INT32_MAX);
  std::unique_ptr<PagePool> pool(new PagePool(layout, num_pages, storage));
  pool->free_.reserve(size_t(num_pages));
  for (int64_t page = num_pages - 1; page >= 0; --page) pool->free_.push_back(int32_t(page));

  size_t bytes = 0;
  if (__builtin_mul_overflow(layout.page_bytes(), size_t(num_pages), &bytes))
    return error(Code::out_of_memory, "a page pool of ", num_pages, " pages does not fit the address space");
  if (bytes > 0) {  // a model of KDA layers alone has no rows to page
    DSA_ASSIGN(pool->memory_, storage.allocate_sparse(bytes, "a page pool"));
  }

  const size_t state_bytes = layout.state_bytes();
  if (num_states > 0 && state_bytes > 0) {
    pool->states_ = std::make_shared<States>();
    DSA_ASSIGN(pool->states_->memory,
               storage.allocate(size_t(num_states) * state_bytes, "the states of sessions"));
    pool->states_->free.reserve(size_t(num_states));
    pool->states_->count = num_states;
    for (int64_t i = num_states - 1; i >= 0; --i)
      pool->states_->free.push_back(static_cast<char*>(pool->states_->memory.get()) +
                                    size_t(i) * state_bytes);
  }
  return pool;
}

Result<Memory> PagePool::take_state() {
  if (!states_) return storage_.allocate(layout_.state_bytes(), "the state of a session");
  void* state = nullptr;
  {
    const std::lock_guard lock(states_->mutex);
    if (states_->free.empty())
      return error(storage_.is_host() ? Code::out_of_memory : Code::out_of_device_memory, "all ",
                   states_->count, " states of the plan are in use by sessions")
          .with_fix(Fix::free_memory)
          .with_room(layout_.state_bytes(), 0);
    state = states_->free.back();
    states_->free.pop_back();
  }
  return Memory(state, [states = states_](void* p) {
    const std::lock_guard lock(states->mutex);
    states->free.push_back(p);  // its room was reserved
  });
}

int64_t PagePool::free_pages() const {
  const std::lock_guard lock(mutex_);
  return int64_t(free_.size());
}

uint64_t PagePool::used_bytes() const { return uint64_t(num_pages_ - free_pages()) * layout_.page_bytes(); }

Result<Reservation> PagePool::reserve(const StepPlan& plan) {
  int64_t needed = 0;
  for (const SequenceStep& step : plan.sequences) {
    SequenceState& state = *step.state;
    if (step.count > state.max_tokens_ - state.length_)
      return error(Code::context_full, "the context holds ", state.length_, " of ", state.max_tokens_,
                   " tokens; ", step.count, " more do not fit")
          .with_fix(Fix::shorten)
          .with_room(uint64_t(state.length_) + uint64_t(step.count), uint64_t(state.max_tokens_));
    DSA_TRY(state.ensure_fixed());
    const int64_t pages = (int64_t(state.length_) + step.count + kPageSize - 1) / kPageSize;
    state.pages_.reserve(size_t(pages));
    needed += pages - int64_t(state.pages_.size());
  }

  Reservation reservation(this);
  {
    const std::lock_guard lock(mutex_);
    reservation.items_.swap(spare_items_);
  }
  reservation.items_.reserve(plan.sequences.size());
  const std::lock_guard lock(mutex_);
  if (needed > int64_t(free_.size())) {
    const uint64_t page_bytes = layout_.page_bytes();
    return error(Code::out_of_memory, "the step needs ", needed, " pages, the pool has ", free_.size(),
                 " left")
        .with_fix(Fix::free_memory)
        .with_room(uint64_t(needed) * page_bytes, uint64_t(free_.size()) * page_bytes);
  }
  for (const SequenceStep& step : plan.sequences) {
    SequenceState& state = *step.state;
    reservation.items_.push_back({&state, step.count, state.pages_.size(), false});
    const size_t pages = (size_t(state.length_) + size_t(step.count) + kPageSize - 1) / kPageSize;
    while (state.pages_.size() < pages) {
      state.pages_.push_back(free_.back());
      free_.pop_back();
    }
  }
  return reservation;
}

PagedRows PagePool::rows(size_t offset, const int32_t* block_tables, int max_pages, int dim,
                         int page_rows) const {
  return {static_cast<char*>(memory_.get()) + offset,
          layout_.page_bytes(),
          block_tables,
          max_pages,
          dim,
          page_rows,
          layout_.rows_format()};
}

PagedRows PagePool::latents(int layer, const int32_t* block_tables, int max_pages) const {
  PagedRows latents =
      rows(layout_.latent_offset(layer), block_tables, max_pages, layout_.latent_dim, kPageSize);
  latents.format = layout_.format;
  latents.coded = layout_.latent_coded;
  return latents;
}

PagedRows PagePool::keys(int layer, const int32_t* block_tables, int max_pages) const {
  return rows(layout_.key_offset(layer), block_tables, max_pages, layout_.kv_dim, kPageSize);
}

PagedRows PagePool::values(int layer, const int32_t* block_tables, int max_pages) const {
  return rows(layout_.value_offset(layer), block_tables, max_pages, layout_.kv_dim, kPageSize);
}

PagedRows PagePool::index_keys(int layer, const int32_t* block_tables, int max_pages) const {
  return rows(layout_.index_offset(layer), block_tables, max_pages, layout_.index_dim, layout_.index_rows());
}

void PagePool::give_back(std::vector<int32_t>& pages, size_t keep) {
  const std::lock_guard lock(mutex_);
  while (pages.size() > keep) {
    free_.push_back(pages.back());  // its capacity was reserved for every page of the pool
    pages.pop_back();
  }
}

}  // namespace dsa
