#include "state/sequence_state.h"

namespace dsa {

SequenceState::SequenceState(PagePool& pool, int max_tokens) : pool_(pool), max_tokens_(max_tokens) {}

SequenceState::~SequenceState() { pool_.give_back(pages_, 0); }

uint64_t SequenceState::bytes() const {
  const StateLayout& layout = pool_.layout();
  return pages_.size() * layout.page_bytes() + (fixed_[1] ? 2 * layout.fixed_floats() * sizeof(float) : 0);
}

Result<Mark> SequenceState::mark() const {
  Mark mark;
  mark.length_ = length_;
  if (length_ > 0 && fixed_[current_]) {
    DSA_ASSIGN(mark.fixed_, pool_.take_state());
    pool_.storage().copy(mark.fixed_.get(), fixed(current_), pool_.layout().fixed_floats() * sizeof(float));
  }
  return mark;
}

void SequenceState::rewind(const Mark& mark) {
  DSA_ASSERT(mark.length_ <= length_);
  length_ = mark.length_;
  pool_.give_back(pages_, size_t(length_ + kPageSize - 1) / kPageSize);
  if (!fixed_[current_]) return;  // nothing has run yet
  const size_t bytes = pool_.layout().fixed_floats() * sizeof(float);
  if (length_ > 0)
    pool_.storage().copy(fixed(current_), mark.fixed_.get(), bytes);
  else
    pool_.storage().clear(fixed(current_), bytes);
}

const float* SequenceState::recurrent(int kda_layer) const { return this->kda_layer(current_, kda_layer); }
float* SequenceState::next_recurrent(int kda_layer) { return this->kda_layer(1 - current_, kda_layer); }
const float* SequenceState::conv(int kda_layer) const {
  return this->kda_layer(current_, kda_layer) + pool_.layout().recurrent_floats;
}
float* SequenceState::next_conv(int kda_layer) {
  return this->kda_layer(1 - current_, kda_layer) + pool_.layout().recurrent_floats;
}

float* SequenceState::kda_layer(int copy, int kda_layer) const {
  const StateLayout& layout = pool_.layout();
  return fixed(copy) + size_t(kda_layer) * (layout.recurrent_floats + layout.conv_floats);
}

const float* SequenceState::open_pool(int index_layer) const { return pool(current_, index_layer); }
float* SequenceState::next_open_pool(int index_layer) { return pool(1 - current_, index_layer); }

float* SequenceState::pool(int copy, int index_layer) const {
  const StateLayout& layout = pool_.layout();
  return fixed(copy) + layout.kda_floats() + size_t(index_layer) * layout.open_pool_floats();
}

Status SequenceState::ensure_fixed() {
  if (pool_.layout().fixed_floats() == 0) return Status::ok();
  for (Memory& copy : fixed_) {
    if (copy) continue;
    DSA_ASSIGN(copy, pool_.take_state());
    pool_.storage().clear(copy.get(), pool_.layout().fixed_floats() * sizeof(float));
  }
  return Status::ok();
}

}  // namespace dsa
