// state/sequence_state.h: what one session keeps: its pages, and in two copies what is not paged: its KDA state and
// the open pools of its index keys.
//
// A step writes past the committed length and into the next copy. Until commit nothing of that is visible; a step that
// fails leaves the sequence as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "state/page_pool.h"
#include "state/state_layout.h"

namespace dsa {

// A point of a sequence that it can return to exactly: a length and a copy of what is not paged.
class Mark {
 public:
  int length() const { return length_; }

 private:
  friend class SequenceState;
  int length_ = 0;
  Memory fixed_;
};

class SequenceState {
 public:
  // Empty. Takes no page and no other memory before the first step. The pool outlives the sequence.
  SequenceState(PagePool& pool, int max_tokens);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int length() const { return length_; }  // committed tokens
  int max_tokens() const { return max_tokens_; }
  const std::vector<int32_t>& pages() const { return pages_; }
  uint64_t bytes() const;  // held now

  Result<Mark> mark() const;
  // Back to a mark of this sequence whose length is at most the present one; pages behind it return to the pool.
  void rewind(const Mark& mark);

  // KDA state of one layer, in the memory of kernels: as committed, and as the step in progress leaves it.
  const float* recurrent(int kda_layer) const;
  float* next_recurrent(int kda_layer);
  const float* conv(int kda_layer) const;  // [width - 1, channels], oldest first
  float* next_conv(int kda_layer);

  // The open pool of one index layer, in the same two states: [index_group - 1, 2, index_dim].
  const float* open_pool(int index_layer) const;
  float* next_open_pool(int index_layer);

 private:
  friend class PagePool;
  friend class Reservation;

  float* fixed(int copy) const { return static_cast<float*>(fixed_[copy].get()); }
  float* kda_layer(int copy, int kda_layer) const;
  float* pool(int copy, int index_layer) const;
  Status ensure_fixed();

  PagePool& pool_;
  int max_tokens_;
  int length_ = 0;
  std::vector<int32_t> pages_;
  Memory fixed_[2];
  int current_ = 0;
};

}  // namespace dsa
