// tests/bench/synthetic_model.h: a checkpoint of random weights in anonymous memory, large enough to be bound by it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "io/checkpoint.h"
#include "model/model_config.h"

namespace dsa::bench {

struct SyntheticShape {
  int hidden = 2048, layers = 8, vocab = 16384, experts = 16, experts_per_token = 8, expert_dim = 2048,
      latent_dim = 2048, top_k = 128;
};

struct SyntheticModel {
  std::shared_ptr<const ModelConfig> config;
  std::shared_ptr<const Checkpoint> checkpoint;
  uint64_t active_weight_bytes = 0;  // read for one token
};

// K3.1's architecture: every fourth layer and the last are latent attention with an indexer, the rest KDA.
Result<SyntheticModel> make_synthetic_model(const SyntheticShape& shape);

}  // namespace dsa::bench
