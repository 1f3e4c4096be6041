// kernels/sample/sample_weight.h: the arithmetic of `sample`, the same in every bit on every machine.
//
// The functions are static: files of several instruction sets compile them.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/common/numbers.h"

namespace dsa {

// log2(e) / temperature, such that its product with an f32 is exact in f64.
DSA_HD static inline float sample_scale(float temperature) {
  const double scale = 1.4426950408889634 / double(temperature);
  return scale < 3e38 ? float(scale) : 3e38f;
}

// 2^x for x in [0, 1), by Chebyshev nodes of (2^x - 1) / x, in steps of 2^-31: the coefficients of x^6 to 1.
constexpr int kSampleTerms = 7;
DSA_HD static inline uint32_t sample_term(int k) {
  constexpr uint32_t kTerms[kSampleTerms] = {447061,    2725622,    20727931,   119176803,
                                             515883993, 1488522215, 2147483648u};
  return kTerms[k];
}
constexpr double kSampleFixed =
    0x1.8p28;  // the low word of its sum with a number is the number in steps of 2^-24

// 2^40 exp((logit - best) / temperature), to 1e-8 of it and what the f32 difference loses. Every step is exact or
// rounds once, whether or not products and sums are contracted.
DSA_HD static inline uint64_t sample_weight(float logit, float best, float scale) {
  double power = double(logit - best) * double(scale);  // of 2
  power = power > -63 ? power : -63;
  const double fixed = power + kSampleFixed;
  uint64_t bits;
  memcpy(&bits, &fixed, sizeof bits);
  const uint64_t part = bits & 0xffffffu;  // of the power, in [0, 1)
  uint64_t sum = 0;
  for (int k = 0; k < kSampleTerms; ++k) sum = sample_term(k) + (sum * part >> 24);
  return sum << 9 >> (-(bits >> 24) & 0xff);
}
constexpr uint64_t kSampleWeightOne = uint64_t(1) << 40;

// Weights below are not kept.
DSA_HD static inline uint64_t sample_weight_min(float min_p) {
  const double least = double(min_p) * double(kSampleWeightOne);
  const auto whole = uint64_t(least);
  return whole + (double(whole) < least ? 1 : 0);
}

// What the weights of a beginning must reach.
DSA_HD static inline uint64_t sample_target(float top_p, uint64_t total) {
  const auto target = uint64_t(double(top_p) * double(total));
  return target > 0 ? (target < total ? target : total) : 1;
}

// Rises with the logit; the zeros are equal. Of no NaN.
DSA_HD static inline uint32_t sample_key(float logit) {
  const uint32_t bits = f32_to_bits(logit + 0.f);  // -0 + 0 is +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DSA_HD static inline float sample_logit(uint32_t key) {
  return bits_to_f32(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

}  // namespace dsa
