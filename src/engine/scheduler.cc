#include "engine/scheduler.h"

#include <algorithm>

namespace dsa {

void share_step(std::span<StepShare> runs, const StepLimits& limits) {
  bool foreground = false;
  for (const StepShare& run : runs) foreground |= run.remaining > 0 && run.priority != Priority::background;
  const auto takes_part = [&](const StepShare& run) {
    return run.remaining > 0 && !(foreground && run.priority == Priority::background);
  };

  int tokens = limits.tokens, sequences = limits.sequences, prompts = 0;
  bool decodes = false;
  for (StepShare& run : runs) {
    run.count = 0;
    if (!takes_part(run)) continue;
    if (run.remaining > 1) {
      ++prompts;
    } else if (tokens > 0 && sequences > 0) {
      run.count = 1;
      decodes = true;
      --tokens, --sequences;
    }
  }

  // Interactive prompts first, then normal ones; each takes an even share of what is left.
  if (decodes) tokens = std::min(tokens, limits.chunk);
  for (const Priority priority : {Priority::interactive, Priority::normal, Priority::background})
    for (StepShare& run : runs) {
      if (run.priority != priority || run.remaining <= 1 || !takes_part(run)) continue;
      if (tokens <= 0 || sequences <= 0) return;
      const int sharers = std::min(prompts, sequences);
      run.count = std::min(run.remaining, std::max(1, tokens / std::max(1, sharers)));
      tokens -= run.count, --sequences, --prompts;
    }
}

}  // namespace dsa
