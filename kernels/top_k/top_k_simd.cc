// kernels/top_k/top_k_simd.cc: finds the smallest score that is still selected by radix, then emits in order.
//
// Scores become integers of the same order. A histogram over the leading bits of all scores tells in which
// bin the last selected one lies; a histogram over the next bits of that bin alone refines it. One more pass
// writes the positions above the threshold, and as many on it as are still missing. A token goes to a thread.
#include <cstring>

#include "kernels/common/simd.h"
#include "kernels/top_k/top_k.h"

namespace dsa {
namespace DSA_ISA {
namespace {

const hn::RebindToUnsigned<F32> u32;
using Key = hn::Vec<hn::RebindToUnsigned<F32>>;

constexpr int kMaxBits = 11;  // of a histogram

// Larger scores have larger keys; -0 is 0; NaN has the smallest.
Key keys_of(Vec score) {
  score = add(score, zero());  // -0 becomes 0
  const Key bits = hn::BitCast(u32, score);
  const hn::RebindToSigned<F32> i32;
  const Key sign = hn::BitCast(u32, hn::ShiftRight<31>(hn::BitCast(i32, bits)));  // all ones if negative
  const Key key = hn::Xor(bits, hn::Or(sign, hn::Set(u32, 0x80000000u)));
  return hn::IfThenElseZero(hn::RebindMask(u32, hn::Eq(score, score)), key);
}

uint64_t bits_of(hn::Mask<hn::RebindToUnsigned<F32>> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(u32, mask, bytes);
  uint64_t bits;
  memcpy(&bits, bytes, sizeof bits);
  return bits;
}

uint64_t first_bits(size_t n) { return (uint64_t{1} << n) - 1; }

// Which keys are selected: those above `key`, and the first `ties` of those equal to it.
struct Threshold {
  uint32_t key;
  int ties;
};

// A histogram in two copies: neighbours of equal score do not wait for each other.
struct Histogram {
  uint32_t even[1 << kMaxBits] = {}, odd[1 << kMaxBits] = {};

  int operator[](uint32_t bin) const { return int(even[bin] + odd[bin]); }
};

// Counts the keys whose bits above `left` are `prefix`, by the `bits` bits below.
void count_keys(const float* scores, int count, uint32_t prefix, int left, int bits, Histogram& histogram) {
  HWY_ALIGN uint32_t bins[HWY_MAX_BYTES / sizeof(uint32_t)];
  const Key mask = hn::Set(u32, (1u << bits) - 1), wanted = hn::Set(u32, prefix);
  for_each_vector(0, count, [&](int64_t p, size_t n) {
    const Key keys = keys_of(load(scores + p, n));
    if (left == 32) {
      hn::Store(hn::ShiftRightSame(keys, left - bits), u32, bins);
      for (size_t i = 0; i + 1 < n; i += 2) ++histogram.even[bins[i]], ++histogram.odd[bins[i + 1]];
      if (n % 2 != 0) ++histogram.even[bins[n - 1]];
      return;
    }
    uint64_t members = bits_of(hn::Eq(hn::ShiftRightSame(keys, left), wanted)) & first_bits(n);
    if (members == 0) return;
    hn::Store(hn::And(hn::ShiftRightSame(keys, left - bits), mask), u32, bins);
    for (; members != 0; members &= members - 1) ++histogram.even[bins[__builtin_ctzll(members)]];
  });
}

Threshold find_threshold(const float* scores, int count, int k) {
  uint32_t prefix = 0;  // the leading bits of the threshold
  int left = 32;        // bits below them
  while (left > 0) {
    const int bits = left < kMaxBits ? left : kMaxBits;
    Histogram histogram;
    count_keys(scores, count, prefix, left, bits, histogram);

    uint32_t bin = (1u << bits) - 1;
    while (histogram[bin] < k) k -= histogram[bin--];
    prefix = prefix << bits | bin;
    left -= bits;
    if (histogram[bin] == k) return {prefix << left, k};  // the whole bin, from its lowest key on
  }
  return {prefix, k};
}

void emit(const float* scores, int count, Threshold threshold, int32_t* selected) {
  const Key key = hn::Set(u32, threshold.key);
  for_each_vector(0, count, [&](int64_t p, size_t n) {
    const Key keys = keys_of(load(scores + p, n));
    const uint64_t above = bits_of(hn::Gt(keys, key)) & first_bits(n);
    const uint64_t equal = threshold.ties > 0 ? bits_of(hn::Eq(keys, key)) & first_bits(n) : 0;
    for (uint64_t members = above | equal; members != 0; members &= members - 1) {
      const int i = __builtin_ctzll(members);
      if (equal >> i & 1) {
        if (threshold.ties == 0) continue;
        --threshold.ties;
      }
      *selected++ = int32_t(p + i);
    }
  });
}

}  // namespace

void top_k(const TopKArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const float* scores = a.scores + t * a.scores_stride;
    int32_t* selected = a.selected + t * a.top_k;
    const int count = a.visible[t];
    if (count <= a.top_k) {
      for (int slot = 0; slot < a.top_k; ++slot) selected[slot] = slot < count ? slot : -1;
      return;
    }
    if (a.top_k > 0) emit(scores, count, find_threshold(scores, count, a.top_k), selected);
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
