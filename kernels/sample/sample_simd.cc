// kernels/sample/sample_simd.cc: the last token that is kept is found by radix, without an order of the others.
//
// Logits become integers of the same order. Of all tokens the weights, or their number, are added up by the leading bits;
// the bins from the top tell in which one the last kept token lies, and the next bits of that bin alone refine it. A row
// goes to a thread.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/simd.h"
#include "kernels/sample/sample.h"
#include "kernels/sample/sample_weight.h"

namespace dsa {
namespace DSA_ISA {
namespace {

__extension__ using uint128 = unsigned __int128;

constexpr int kBits = 11, kBins = 1 << kBits;  // of a digit

struct Largest {
  int at;         // the first of the largest
  bool ordinary;  // no NaN, no +inf
};

// Lanes keep maxima of their own, so that a vocabulary goes through vector registers.
Largest find_largest(const float* x, int n) {
  constexpr int kLane = 32, kPart = 64 * kLane;
  int best = 0;
  bool ordinary = true;
  for (int begin = 0; begin < n; begin += kPart) {
    const int end = std::min(n, begin + kPart);
    float largest[kLane];
    std::fill_n(largest, kLane, x[best]);
    int strange[kLane] = {};
    int i = begin;
    for (; i + kLane <= end; i += kLane)
      for (int j = 0; j < kLane; ++j) {
        largest[j] = x[i + j] > largest[j] ? x[i + j] : largest[j];
        strange[j] |= x[i + j] <= std::numeric_limits<float>::max() ? 0 : 1;
      }
    for (; i < end; ++i) {
      largest[0] = std::max(largest[0], x[i]);
      strange[0] |= x[i] <= std::numeric_limits<float>::max() ? 0 : 1;
    }
    for (const int s : strange) ordinary &= s == 0;
    const float most = *std::max_element(largest, largest + kLane);
    if (most > x[best]) best = int(std::find(x + begin, x + end, most) - x);
  }
  return {best, ordinary};
}

const hn::ScalableTag<double> f64;
const hn::Rebind<float, decltype(f64)> f32;
const hn::RebindToUnsigned<decltype(f64)> u64;
const hn::Repartition<uint32_t, decltype(f64)> u32;
using Words = hn::Vec<decltype(u64)>;

// sample_weight() of n logits. Whole vectors are read and written.
void weigh(const float* logits, int n, float best, float temperature, uint64_t* weights) {
  const auto best_of = hn::Set(f32, best);
  const auto scale = hn::Set(f64, double(sample_scale(temperature)));
  for (size_t i = 0; i < size_t(n); i += hn::Lanes(f64)) {
    const auto difference = hn::PromoteTo(f64, hn::Sub(hn::LoadU(f32, logits + i), best_of));
    const auto power = hn::Max(hn::Mul(difference, scale), hn::Set(f64, -63.0));
    const Words steps = hn::BitCast(u64, hn::Add(power, hn::Set(f64, kSampleFixed)));
    const Words part = hn::And(steps, hn::Set(u64, 0xffffff));
    Words sum = hn::Zero(u64);
    for (int k = 0; k < kSampleTerms; ++k)
      sum = hn::Add(hn::ShiftRight<24>(hn::MulEven(hn::BitCast(u32, sum), hn::BitCast(u32, part))),
                    hn::Set(u64, sample_term(k)));
    const Words shift = hn::And(hn::Sub(hn::Zero(u64), hn::ShiftRight<24>(steps)), hn::Set(u64, 0xff));
    hn::StoreU(hn::Shr(hn::ShiftLeft<9>(sum), shift), u64, weights + i);
  }
}

constexpr int kBlock = 1024;  // tokens that are looked at together
constexpr int kRoom = kBlock + int(hn::MaxLanes(hn::ScalableTag<double>()));  // for whole vectors of them

class Row {
 public:
  Row(const float* logits, int vocab, const SampleRow& asked)
      : logits_(logits), vocab_(vocab), asked_(asked) {}

  SampledToken sample() {
    const Largest largest = find_largest(logits_, vocab_);
    if (!largest.ordinary)
      for (int t = 0; t < vocab_; ++t)
        if (!(logits_[t] <= std::numeric_limits<float>::max())) return {-1, t, logits_[t]};
    best_ = logits_[largest.at];
    if (std::isinf(best_)) return {-1, -1, 0};
    if (asked_.temperature == 0) return {largest.at, -1, 0};
    if (asked_.top_k > 0 && asked_.top_k < uint32_t(vocab_)) cut_at_count();
    if (asked_.top_p < 1) cut_at_weight();
    return {draw(), -1, 0};
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Logits whose leading bits are known: from <= logit < to.
  struct Range {
    float from = -kInfinity, to = kInfinity;
  };

  // Finds a key digit by digit. fill(bins, range, bin_of) adds up the logits of a range; in the bin that is chosen the sum
  // from the top reaches `rest`, which becomes what is missing there.
  template <class F>
  static float find_border(uint64_t& rest, const F& fill) {
    uint32_t key = 0;
    Range range;
    for (int left = 32; left > 0;) {  // bits that are not known yet
      const int shift = std::max(0, left - kBits);
      const uint32_t mask = (1u << (left - shift)) - 1;
      uint64_t bins[kBins] = {};
      fill(bins, range, [=](float logit) { return sample_key(logit) >> shift & mask; });
      uint32_t bin = mask;
      while (bins[bin] < rest) rest -= bins[bin--];
      key |= bin << shift;
      left = shift;
      const bool is_lowest = key <= sample_key(-kInfinity);  // below lie the keys of NaN
      range = {is_lowest ? -kInfinity : sample_logit(key), sample_logit(key + (1u << left))};
    }
    return sample_logit(key);
  }

  void cut_at_count() {
    uint64_t rest = asked_.top_k;
    const float border = find_border(rest, [&](uint64_t* bins, Range range, const auto& bin_of) {
      each_block(range, [&](const int32_t*, const float* logits, int n) {
        for (int k = 0; k < n; ++k) ++bins[bin_of(logits[k])];
        return true;
      });
    });
    least_ = border;
    equal_ = int64_t(rest);
  }

  void cut_at_weight() {
    uint64_t total = 0, rest = 0;
    const float border = find_border(rest, [&](uint64_t* bins, Range range, const auto& bin_of) {
      each_block(range, [&](const int32_t*, const float* logits, int n) {
        uint64_t weights[kRoom];
        weigh(logits, n, best_, 1, weights);
        for (int k = 0; k < n; ++k) bins[bin_of(logits[k])] += weights[k];
        return true;
      });
      if (total > 0) return;
      for (int bin = 0; bin < kBins; ++bin) total += bins[bin];
      rest = sample_target(asked_.top_p, total);
    });
    const uint64_t weight =
        sample_weight(border, best_, sample_scale(1));  // not 0: a weight was missing there
    least_ = border;
    equal_ = int64_t((rest + weight - 1) / weight);
  }

  int draw() const {
    uint64_t total = 0, sum = 0;
    each_block({}, [&](const int32_t*, const float* logits, int n) {
      uint64_t weights[kRoom];
      weigh_likely(logits, n, weights);
      for (int k = 0; k < n; ++k) total += weights[k];
      return true;
    });
    const auto place = uint64_t(uint128(asked_.draw) * total >> 64);
    int drawn = -1;
    each_block({}, [&](const int32_t* tokens, const float* logits, int n) {
      uint64_t weights[kRoom];
      weigh_likely(logits, n, weights);
      for (int k = 0; k < n && drawn < 0; ++k)
        if ((sum += weights[k]) > place) drawn = tokens[k];
      return drawn < 0;
    });
    return drawn;
  }

  // The weights that are drawn from: none where min_p says so.
  void weigh_likely(const float* logits, int n, uint64_t* weights) const {
    weigh(logits, n, best_, asked_.temperature, weights);
    const uint64_t least = sample_weight_min(asked_.min_p);
    if (least == 0) return;
    uint64_t units[kRoom];
    weigh(logits, n, best_, 1, units);
    for (int k = 0; k < n; ++k) weights[k] = units[k] >= least ? weights[k] : 0;
  }

  // Calls f(tokens, logits, n) for the kept tokens of a range, in ascending order, a few at a time and as long as it returns
  // true. There is room for whole vectors of logits.
  template <class F>
  void each_block(Range range, const F& f) const {
    int64_t equal = equal_;
    const float from = std::max(range.from, least_);
    int32_t tokens[kRoom];
    float kept[kRoom];
    for (int begin = 0; begin < vocab_; begin += kBlock) {
      const int end = std::min(begin + kBlock, vocab_);
      int some = 0;
      for (int t = begin; t < end; ++t) some |= logits_[t] >= from ? 1 : 0;
      if (some == 0) continue;
      int n = 0;
      for (int t = begin; t < end; ++t) {
        const float logit = logits_[t];
        const bool within = (logit >= from) & (logit < range.to);
        tokens[n] = t, kept[n] = logit;
        if (logit == least_)
          n += within && equal-- > 0 ? 1 : 0;
        else
          n += within ? 1 : 0;
      }
      if (n == 0) continue;
      std::fill(kept + n, kept + kRoom - kBlock + n, best_);
      if (!f(tokens, kept, n)) return;
    }
  }

  const float* const logits_;
  const int vocab_;
  const SampleRow& asked_;
  float best_ = 0;
  // Kept are the tokens above `least_`, and the first `equal_` of those that equal it.
  float least_ = -kInfinity;
  int64_t equal_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

void sample(const SampleArgs& a, Queue& queue) {
  queue.parallel_for(a.rows, [&](int64_t r) {
    a.sampled[r] = Row(a.logits + r * a.logits_stride, a.vocab, a.asked[r]).sample();
    a.tokens[r] = std::max(a.sampled[r].token, 0);
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
