// tests/bench/model_bench.h: decode and prefill of a synthetic model through the decoder, on any backend.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/synthetic_backend.h"

namespace dsa::bench {

struct ModelBenchOptions {
  std::string shape;
  std::vector<int> batches, contexts;            // of decode
  std::vector<int> prompts;                      // of prefill
  int chunk = 2048;                              // tokens of a prefill step at most
  int steps = 24;                                // timed ones of decode
  std::optional<CacheFormat> cache_format = {};  // none: f32 on the CPU, bf16 on a GPU
  bool operators = false;  // also the time of each operator, and what steps cost the host
};

// Reads --shape, --batch, --context, --prefill, --chunk, --steps, --kv, --operators, which replace what is there. False, and
// the usage on stderr, for anything else.
bool read_model_options(int argc, char** argv, ModelBenchOptions& options);

// The machine behind a backend.
struct BenchMachine {
  Backend& backend;
  OperatorClock& clock;
  MakeWeights make;  // empty: weights lie in the file
  // A rate to compare with, in bytes per second, measured anew at each call: of memory that is given, or its own.
  struct Ceiling {
    const char* name;
    std::function<double(const SyntheticModel&)> bytes_per_second;
  };
  std::vector<Ceiling> ceilings;
};

Status model_bench(const BenchMachine& machine, const ModelBenchOptions& options);

}  // namespace dsa::bench
