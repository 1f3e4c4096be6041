// engine/scheduler.h: how many tokens each active run gets in the next step.
//
// Runs that decode get their token first, so a long prompt does not stall them; prompts share what is left
// evenly, in chunks. Background runs get nothing while a run of another class has work.
#pragma once

#include <span>

namespace dsa {

enum class Priority { interactive, normal, background };

struct StepLimits {
  int tokens = 256;    // in one step
  int sequences = 64;  // in one step
  int chunk = 128;     // prompt tokens in one step while others decode
};

struct StepShare {
  Priority priority = Priority::normal;
  int remaining = 0;  // tokens that are known and were not run yet; 1 is a decode step
  int count = 0;      // out: tokens in the next step
};

// Fills `count` of each. At least one run with work gets something.
void share_step(std::span<StepShare> runs, const StepLimits& limits);

}  // namespace dsa
