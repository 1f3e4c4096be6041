// engine/sampler.h: from logits to one token: bias, penalties, top_k, top_p, min_p, temperature, draw.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "text/tokenizer.h"

namespace dsa {

// xoshiro256**, seeded by splitmix64: the same numbers on every platform.
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t next();
  double uniform();  // [0, 1), 53 bits

 private:
  uint64_t state_[4];
};

// A seed from the system; never 0.
uint64_t draw_seed();

struct Sampling {
  float temperature = 0;  // 0: the most likely token, the lowest id on a tie
  uint32_t top_k = 0;     // 0: off
  float top_p = 1, min_p = 0;
  float repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  uint32_t repeat_window = 64;  // last tokens that penalties look at
  std::vector<std::pair<TokenId, float>> bias;

  bool has_penalties() const {
    return repeat_window > 0 && (repeat_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0);
  }
  // Whether logits change before a token is chosen, which the host does.
  bool changes_logits() const { return !bias.empty() || has_penalties(); }
  // The choice that is left then. Takes a number if it needs one.
  SampleRow row(Random& random) const;
};

// Why a row has no token.
Status no_token(const SampledToken& sampled);

// Code::argument names the value that is NaN or out of range.
Status check_sampling(const Sampling& sampling, int vocab);

// Chooses on the host. What a device chooses from the same logits is the same: see kernels/sample/sample.h.
class Sampler {
 public:
  explicit Sampler(int vocab);

  // Allocates nothing. Code::numeric if a logit is NaN or +inf, or if no token is possible.
  Result<TokenId> sample(const float* logits, const Sampling& sampling, Random& random,
                         std::span<const TokenId> history);

 private:
  void penalize(const Sampling& sampling, std::span<const TokenId> history);

  std::vector<float> scores_;      // [vocab]
  std::vector<uint32_t> seen_;     // [vocab]  zero between calls
  std::vector<TokenId> distinct_;  // of seen_
};

}  // namespace dsa
