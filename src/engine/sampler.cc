#include "engine/sampler.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace dsa {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

Status check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return Status::ok();  // NaN fails both
  return error(Code::argument, name, " is ", value, ", expected ", low, " to ", high).with_fix(Fix::input);
}

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = splitmix64(seed);
}

uint64_t Random::next() {
  const uint64_t result = rotate(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate(state_[3], 45);
  return result;
}

double Random::uniform() { return double(next() >> 11) * 0x1p-53; }

uint64_t draw_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != ssize_t(sizeof(seed))) {
    seed = uint64_t(std::chrono::steady_clock::now().time_since_epoch().count()) ^
           reinterpret_cast<uintptr_t>(&seed);
    seed = splitmix64(seed);
  }
  return seed == 0 ? 1 : seed;
}

Status check_sampling(const Sampling& s, int vocab) {
  const float big = std::numeric_limits<float>::max();
  DSA_TRY(check_range("temperature", s.temperature, 0, big));
  DSA_TRY(check_range("top_p", s.top_p, 0, 1));
  DSA_TRY(check_range("min_p", s.min_p, 0, 1));
  DSA_TRY(check_range("repeat_penalty", s.repeat_penalty, std::numeric_limits<float>::min(), big));
  DSA_TRY(check_range("presence_penalty", s.presence_penalty, -big, big));
  DSA_TRY(check_range("frequency_penalty", s.frequency_penalty, -big, big));
  for (const auto& [token, value] : s.bias) {
    if (token < 0 || token >= vocab)
      return error(Code::argument, "bias for token ", token, ", expected 0 to ", vocab - 1)
          .with_fix(Fix::input);
    if (value != kNever) DSA_TRY(check_range("a bias", value, -big, big));
  }
  return Status::ok();
}

SampleRow Sampling::row(Random& random) const {
  return {temperature, top_p, min_p, top_k, temperature > 0 ? random.next() : 0};
}

Status no_token(const SampledToken& sampled) {
  if (sampled.at < 0)
    return error(Code::numeric, "no token is possible: every logit is -inf").with_fix(Fix::report);
  return error(Code::numeric, "the logit of token ", sampled.at, " is ", sampled.logit).with_fix(Fix::report);
}

Sampler::Sampler(int vocab) : scores_(size_t(vocab)), seen_(size_t(vocab), 0u) {
  distinct_.reserve(size_t(vocab));
}

void Sampler::penalize(const Sampling& sampling, std::span<const TokenId> history) {
  if (history.size() > sampling.repeat_window) history = history.last(sampling.repeat_window);
  distinct_.clear();
  for (const TokenId token : history)
    if (seen_[size_t(token)]++ == 0) distinct_.push_back(token);
  for (const TokenId token : distinct_) {
    float& score = scores_[size_t(token)];
    score = score > 0 ? score / sampling.repeat_penalty : score * sampling.repeat_penalty;
    score -= sampling.presence_penalty + sampling.frequency_penalty * float(seen_[size_t(token)]);
    seen_[size_t(token)] = 0;
  }
}

Result<TokenId> Sampler::sample(const float* logits, const Sampling& sampling, Random& random,
                                std::span<const TokenId> history) {
  if (sampling.changes_logits()) {
    std::copy(logits, logits + scores_.size(), scores_.begin());
    for (const auto& [token, value] : sampling.bias) scores_[size_t(token)] += value;
    if (sampling.has_penalties()) penalize(sampling, history);
    logits = scores_.data();
  }
  Random next = random;
  const SampleRow asked = sampling.row(next);
  SampledToken sampled;
  int32_t token;
  const auto vocab = int64_t(scores_.size());
  SerialQueue queue;
  cpu_kernels().sample(
      {logits, &asked, &sampled, &token, vocab, 1, int(vocab), sample_flags({&asked, 1}, vocab)}, queue);
  if (sampled.token < 0) return no_token(sampled);
  random = next;
  return TokenId(sampled.token);
}

}  // namespace dsa
