// tests/bench/synthetic_values.h: the values of random weights, word by word, the same bits on host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/numbers.h"

namespace dsa::bench {

enum class Fill : uint8_t {
  zeros,
  ones,
  normal_f32,
  normal_bf16,
  tile_scales,
  e4m3_codes,
  e2m1_codes,
  exponents
};

struct FillRule {
  Fill fill = Fill::zeros;
  float size = 0;    // standard deviation of normal values; value of tile scales
  int exponent = 0;  // codes of exponents: this one and the next
  uint64_t seed = 0;
};

DSA_HD inline uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Cheap and even: the sum of two uniform numbers of 16 bits stands in for a normal one.
DSA_HD inline float normal_of(uint32_t bits, float size) {
  return float(int32_t(bits & 0xffff) + int32_t(bits >> 16) - 65535) * (size / 26754.f);
}

// Bytes [8 * word, 8 * word + 8) of a tensor.
DSA_HD inline uint64_t synthetic_word(const FillRule& rule, uint64_t word) {
  const uint64_t a = scramble(rule.seed + 2 * word), b = scramble(rule.seed + 2 * word + 1);
  switch (rule.fill) {
    case Fill::zeros: return 0;
    case Fill::ones: return 0x3f803f803f803f80u;  // bf16
    case Fill::normal_f32:
      return f32_to_bits(normal_of(uint32_t(a), rule.size)) |
             uint64_t(f32_to_bits(normal_of(uint32_t(b), rule.size))) << 32;
    case Fill::normal_bf16:
      return to_bf16(normal_of(uint32_t(a), rule.size)).bits |
             uint64_t(to_bf16(normal_of(uint32_t(a >> 32), rule.size)).bits) << 16 |
             uint64_t(to_bf16(normal_of(uint32_t(b), rule.size)).bits) << 32 |
             uint64_t(to_bf16(normal_of(uint32_t(b >> 32), rule.size)).bits) << 48;
    case Fill::tile_scales: return f32_to_bits(rule.size) * 0x100000001u;
    case Fill::e4m3_codes: return (a & 0x9f9f9f9f9f9f9f9fu) + 0x2020202020202020u;  // 2^-3 to 2, either sign
    case Fill::e2m1_codes: return a;
    case Fill::exponents: return (a & 0x0101010101010101u) + uint64_t(rule.exponent) * 0x0101010101010101u;
  }
  return 0;
}

}  // namespace dsa::bench
