// state/step_plan.h: what one step computes, and for whom.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsa {

class SequenceState;

// Rows that stand in for the embeddings of some positions: the features of a picture.
struct PlacedRows {
  int first;          // position in the sequence
  int count;          // positions
  const float* rows;  // [count, hidden]
};

struct SequenceStep {
  SequenceState* state;                     // appended to
  const int32_t* tokens;                    // [count]  borrowed until the step has ended
  int count;                                // 1: decode; more: a prefill chunk
  bool wants_logits;                        // of the last token
  std::span<const PlacedRows> placed = {};  // borrowed like the tokens; those outside the step are left out
};

struct StepPlan {
  std::vector<SequenceStep> sequences;  // each sequence at most once

  bool empty() const { return sequences.empty(); }
  int tokens() const {
    int n = 0;
    for (const SequenceStep& s : sequences) n += s.count;
    return n;
  }
};

}  // namespace dsa
