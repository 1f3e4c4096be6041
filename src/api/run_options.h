// api/run_options.h: dsa_run_options as the engine wants them.
#pragma once

#include "base/status.h"
#include "dsa_sdk.h"
#include "engine/engine.h"
#include "engine/run.h"

namespace dsa::api {

struct ParsedRunOptions {
  RunOptions run;
  bool thinking = true;
};

// NULL: all defaults.
Result<ParsedRunOptions> read_run_options(const dsa_run_options* options, const Engine& engine);

// What a run has come to, after its end.
dsa_result result_of(const Run& run);
dsa_event event_of(const Run& run, const Event& event);

}  // namespace dsa::api
