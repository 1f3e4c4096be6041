#include "ops/step.h"

#include <algorithm>

namespace dsa {

void Batch::set(const StepPlan& plan, int hidden) {
  tokens = plan.tokens();
  sequences = int(plan.sequences.size());
  max_pages = 0;
  max_visible = 0;
  for (const SequenceStep& s : plan.sequences) max_pages = std::max(max_pages, int(s.state->pages().size()));

  token_ids.clear();
  positions.clear();
  visible.clear();
  sequence_of.clear();
  logit_rows.clear();
  states.clear();
  placed.clear();
  row_begin.assign(1, 0);
  block_tables.assign(size_t(sequences) * size_t(max_pages), 0);
  for (int i = 0; i < sequences; ++i) {
    const SequenceStep& s = plan.sequences[size_t(i)];
    std::copy(s.state->pages().begin(), s.state->pages().end(),
              block_tables.begin() + int64_t(i) * max_pages);
    const int begin = s.state->length(), row = int(token_ids.size());
    for (const PlacedRows& p : s.placed) {
      const int from = std::max(p.first, begin), to = std::min(p.first + p.count, begin + s.count);
      if (from < to)
        placed.push_back({p.rows + int64_t(from - p.first) * hidden, row + from - begin, to - from});
    }
    for (int t = 0; t < s.count; ++t) {
      token_ids.push_back(s.tokens[t]);
      positions.push_back(s.state->length() + t);
      visible.push_back(s.state->length() + t + 1);
      sequence_of.push_back(i);
    }
    max_visible = std::max(max_visible, s.state->length() + s.count);
    row_begin.push_back(int32_t(token_ids.size()));
    if (s.wants_logits) logit_rows.push_back(int32_t(token_ids.size()) - 1);
    states.push_back(s.state);
  }
}

}  // namespace dsa
