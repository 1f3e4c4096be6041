#include "engine/sampler.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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

struct Largest {
  size_t at;      // the first of the largest
  bool ordinary;  // no NaN, no +inf
};

// One pass; lanes keep maxima of their own, so that a vocabulary goes through vector registers.
Largest find_largest(const float* x, size_t n) {
  constexpr size_t kLanes = 32, kBlock = 64 * kLanes;
  size_t best = 0;
  bool ordinary = true;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t end = std::min(n, begin + kBlock);
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, x[best]);
    int strange[kLanes] = {};
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (size_t j = 0; j < kLanes; ++j) {
        lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        strange[j] |= x[i + j] <= std::numeric_limits<float>::max() ? 0 : 1;
      }
    for (; i < end; ++i) {
      lanes[0] = std::max(lanes[0], x[i]);
      strange[0] |= x[i] <= std::numeric_limits<float>::max() ? 0 : 1;
    }
    for (const int s : strange) ordinary &= s == 0;
    const float largest = *std::max_element(lanes, lanes + kLanes);
    if (largest > x[best]) best = size_t(std::find(x + begin, x + end, largest) - x);
  }
  return {best, ordinary};
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

Sampler::Sampler(int vocab)
    : scores_(size_t(vocab)), candidates_(size_t(vocab)), weights_(size_t(vocab)), seen_(size_t(vocab), 0u) {
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
  const size_t vocab = scores_.size();
  const Largest largest = find_largest(logits, vocab);
  if (!largest.ordinary)
    for (size_t i = 0; i < vocab; ++i)
      if (!(logits[i] <= std::numeric_limits<float>::max()))
        return error(Code::numeric, "the logit of token ", i, " is ", logits[i]).with_fix(Fix::report);
  const bool changes = !sampling.bias.empty() || sampling.has_penalties();
  if (!changes && sampling.temperature == 0 && std::isfinite(logits[largest.at])) return TokenId(largest.at);
  std::copy(logits, logits + vocab, scores_.begin());
  for (const auto& [token, value] : sampling.bias) scores_[size_t(token)] += value;
  if (sampling.has_penalties()) penalize(sampling, history);

  const size_t best = changes ? find_largest(scores_.data(), vocab).at : largest.at;
  if (!std::isfinite(scores_[best]))
    return error(Code::numeric, "no token is possible: every logit is -inf").with_fix(Fix::report);
  if (sampling.temperature == 0) return TokenId(best);

  size_t n = 0;
  for (size_t i = 0; i < vocab; ++i)
    if (scores_[i] > kNever) candidates_[n++] = TokenId(i);
  const auto better = [&](TokenId a, TokenId b) {
    const float x = scores_[size_t(a)], y = scores_[size_t(b)];
    return x != y ? x > y : a < b;
  };
  const auto worse = [&](TokenId a, TokenId b) { return better(b, a); };
  const auto weight = [&](TokenId token) { return std::exp(double(scores_[size_t(token)]) - scores_[best]); };

  TokenId* first = candidates_.data();
  if (sampling.top_k > 0 && sampling.top_k < n) {
    std::nth_element(first, first + sampling.top_k - 1, first + n, better);
    n = sampling.top_k;
    std::sort(first, first + n, better);  // the order must not depend on how nth_element partitions
  }
  if (sampling.top_p < 1) {
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; ++i) total += weight(first[i]);
    // Takes the best from a heap until their share is reached; they gather at the end of the range.
    std::make_heap(first, first + n, worse);
    size_t left = n;
    do {
      std::pop_heap(first, first + left, worse);
      sum += weight(first[--left]);
    } while (left > 0 && sum < double(sampling.top_p) * total);
    first += left;
    n -= left;
  }
  if (sampling.min_p > 0)  // the best has weight 1
    n = size_t(
        std::remove_if(first, first + n, [&](TokenId t) { return weight(t) < double(sampling.min_p); }) -
        first);

  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    weights_[i] =
        std::exp((double(scores_[size_t(first[i])]) - scores_[best]) / double(sampling.temperature));
    total += weights_[i];
  }
  double left = random.uniform() * total;
  for (size_t i = 0; i < n; ++i) {
    left -= weights_[i];
    if (left < 0) return first[i];
  }
  return TokenId(best);  // rounding left a crumb
}

}  // namespace dsa
