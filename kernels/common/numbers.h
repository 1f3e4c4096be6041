// kernels/common/numbers.h: number formats, decoded exactly. Host and device code share it.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define DSA_HD __host__ __device__
#else
#define DSA_HD
#endif

namespace dsa {

struct bf16 {
  uint16_t bits;
};

DSA_HD inline float bits_to_f32(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
DSA_HD inline uint32_t f32_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

DSA_HD inline float to_f32(float value) { return value; }
DSA_HD inline float to_f32(bf16 value) { return bits_to_f32(uint32_t(value.bits) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
DSA_HD inline bf16 to_bf16(float value) {
  const uint32_t bits = f32_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{uint16_t((bits >> 16) | 0x40)};
  return bf16{uint16_t((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}

// E8M0: 2^(code - 127). Code 0 is 2^-127, a subnormal; code 255 is NaN.
DSA_HD inline float e8m0_to_f32(uint8_t code) {
  return bits_to_f32(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : uint32_t(code) << 23);
}

// E4M3 without infinities: largest 448, steps of 2^-9 below 2^-6; codes 0x7f and 0xff are NaN.
DSA_HD inline float e4m3_to_f32(uint8_t code) {
  // The seven bits of the magnitude, read as f32, are 2^-120 of it, subnormals included.
  const float magnitude = bits_to_f32(uint32_t(code & 0x7f) << 20) * 0x1p120f;
  if ((code & 0x7f) == 0x7f) return bits_to_f32(0x7fc00000u);
  return code & 0x80 ? -magnitude : magnitude;
}

// Round to nearest, ties to even; beyond 448 saturates, NaN stays NaN.
DSA_HD inline uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = f32_to_bits(value), sign = bits >> 24 & 0x80;
  float magnitude = bits_to_f32(bits & 0x7fffffffu);
  if (!(magnitude <= 448.f)) return uint8_t(sign | (magnitude > 448.f ? 0x7eu : 0x7fu));
  if (magnitude < 0x1p-6f) {  // adding 2^14 leaves steps of 2^-9
    magnitude += 0x1p14f;
    return uint8_t(sign | (f32_to_bits(magnitude) & 15));
  }
  const uint32_t m = f32_to_bits(magnitude);
  return uint8_t(sign | (((m + 0x7ffffu + (m >> 20 & 1)) >> 20) - 960));  // 960 = (127 - 7) * 8
}

// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; bit 3 is the sign.
DSA_HD inline float e2m1_to_f32(uint8_t code) {
  const int m = code & 7;
  const float magnitude = m < 4 ? 0.5f * float(m) : (m < 6 ? float(m - 2) : float(2 * m - 8));
  return code & 8 ? -magnitude : magnitude;
}

constexpr int kFp8Block = 128;   // rows and columns of a tile of an FP8 matrix that share one f32 scale
constexpr int kMxfp4Block = 32;  // values that share one scale

// The value of an FP8 matrix [.., in_dim] at row `o` and column `i`; scales is [.., ceil(in_dim / kFp8Block)].
DSA_HD inline float fp8_value(const uint8_t* codes, const float* scales, int64_t in_dim, int64_t o,
                              int64_t i) {
  const int64_t blocks = (in_dim + kFp8Block - 1) / kFp8Block;
  return e4m3_to_f32(codes[o * in_dim + i]) * scales[o / kFp8Block * blocks + i / kFp8Block];
}

// The value at column `d` of a packed row: the low nibble is the even column.
DSA_HD inline float mxfp4_value(const uint8_t* blocks, const uint8_t* scales, int64_t d) {
  const uint8_t byte = blocks[d / 2];
  return e2m1_to_f32(d % 2 ? byte >> 4 : byte & 15) * e8m0_to_f32(scales[d / kMxfp4Block]);
}

}  // namespace dsa
