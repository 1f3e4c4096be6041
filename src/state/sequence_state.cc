#include "state/sequence_state.h"

#include <algorithm>

namespace dsa {

SequenceState::SequenceState(PagePool& pool, int max_tokens) : pool_(pool), max_tokens_(max_tokens) {}

SequenceState::~SequenceState() { pool_.give_back(pages_, 0); }

uint64_t SequenceState::bytes() const {
  return (pages_.size() * pool_.layout().page_floats() + fixed_[0].size() + fixed_[1].size()) * sizeof(float);
}

Result<Mark> SequenceState::mark() const {
  Mark mark;
  mark.length_ = length_;
  if (length_ > 0) mark.fixed_ = fixed_[current_];
  return mark;
}

void SequenceState::rewind(const Mark& mark) {
  DSA_ASSERT(mark.length_ <= length_);
  length_ = mark.length_;
  pool_.give_back(pages_, size_t(length_ + kPageSize - 1) / kPageSize);
  if (fixed_[current_].empty()) return;  // nothing has run yet
  if (length_ > 0)
    std::copy(mark.fixed_.begin(), mark.fixed_.end(), fixed_[current_].begin());
  else
    std::fill(fixed_[current_].begin(), fixed_[current_].end(), 0.f);
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
  return const_cast<float*>(fixed_[copy].data()) +
         size_t(kda_layer) * (layout.recurrent_floats + layout.conv_floats);
}

const float* SequenceState::open_pool(int index_layer) const { return pool(current_, index_layer); }
float* SequenceState::next_open_pool(int index_layer) { return pool(1 - current_, index_layer); }

float* SequenceState::pool(int copy, int index_layer) const {
  const StateLayout& layout = pool_.layout();
  return const_cast<float*>(fixed_[copy].data()) + layout.kda_floats() +
         size_t(index_layer) * layout.open_pool_floats();
}

Status SequenceState::ensure_fixed() {
  const size_t floats = pool_.layout().fixed_floats();
  for (std::vector<float>& copy : fixed_)
    if (copy.size() != floats) copy.assign(floats, 0.f);
  return Status::ok();
}

}  // namespace dsa
