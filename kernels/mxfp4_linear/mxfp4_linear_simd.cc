// kernels/mxfp4_linear/mxfp4_linear_simd.cc: exact, dot_rows.h over weights expanded to f32; fast, 9-bit
// activations in blocks.
//
// Fast: first every row of x is rounded into the workspace, then items of kOutBlock outputs of one group run
// on all threads. The unsigned x signed products of x86 take the magnitude of an activation and the weight,
// s8 = 2 * e2m1, with the activation's sign: w ^ mask is w, or -w - 1 where the mask is -1. So |q| has all
// eight bits of a byte, and the workspace holds the sum of |q| over the negative values of a block, to add
// what the -1 took. A block lies as its 16 even columns, then its 16 odd ones, which is how the two nibbles
// of 16 packed bytes come apart.
//
// Order of a sum: block b belongs to chain b % kChains. A chain adds float(sum) * (s / 2 * 2^(scale - 127))
// block by block with fma; then the chains are added, upper half to lower half. Block sums are exact, so the
// paths agree:
//
// Few rows   Lanes are [block][output]: four outputs, kChains blocks at a time, straight from the packed
//            rows.
// Many rows  Lanes are outputs: kOutBlock rows of weights are unpacked once into bytes on the stack, in
//            quads of columns, and every row of x passes over them with its quads broadcast.
#include "kernels/common/dot_rows.h"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {
namespace DSA_ISA {

using U8x16 = hn::FixedTag<uint8_t, 16>;
using U8 = hn::Repartition<uint8_t, F32>;
using I8 = hn::Repartition<int8_t, F32>;
using I16 = hn::Repartition<int16_t, F32>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VecU8 = hn::Vec<U8>;
using VecI32 = hn::Vec<I32>;

using F32x4 = hn::FixedTag<float, 4>;
using Vec4 = hn::Vec<F32x4>;

constexpr int kBlock = kMxfp4Block;
constexpr int kBlockBytes = kBlock / 2;
constexpr int kChains = kLanes / 4;

// 2 * e2m1 by nibble.
alignas(16) constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(code - 127) for kLanes codes, as e8m0_to_f32.
static inline Vec scales_to_f32(const uint8_t* codes) {
  const hn::Rebind<uint8_t, F32> d8;
  const I32 d;
  const VecI32 bits = hn::ShiftLeft<23>(hn::BitCast(d, hn::PromoteTo(U32(), hn::LoadU(d8, codes))));
  const VecI32 half_bit = hn::Set(d, 0x00400000);  // 2^-127, and the quiet bit of NaN
  const VecI32 nan = hn::IfThenElseZero(hn::Eq(bits, hn::Set(d, 0x7f800000)), half_bit);
  return hn::BitCast(F32(), hn::Or(hn::Max(bits, half_bit), nan));
}

static inline VecU8 low_nibbles(VecU8 bytes) { return hn::And(bytes, hn::Set(U8(), 15)); }
static inline VecU8 high_nibbles(VecU8 bytes) {
  const hn::Repartition<uint16_t, F32> d16;
  return hn::And(hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))), hn::Set(U8(), 15));
}

// ---- exact ----

struct ExactWeights {
  using Element = float;
  static constexpr bool kUnpacks = true;

  const uint8_t* blocks;  // [out_dim, in_dim / 2]
  const uint8_t* scales;  // [out_dim, in_dim / 32]
  int in_dim;

  const float* tile(int o, int outs, int i, int depth, float* scratch) const {
    const U8x16 d;
    const hn::Rebind<int8_t, F32> d8;
    const auto table = hn::Load(hn::FixedTag<int8_t, 16>(), kTwice);
    const auto mask = hn::Set(d, 15);
    for (int j = 0; j < outs; ++j, scratch += depth) {
      const uint8_t* bytes = blocks + size_t(o + j) * (in_dim / 2) + i / 2;
      const uint8_t* codes = scales + size_t(o + j) * (in_dim / kBlock) + i / kBlock;
      for (int b = 0; b < depth / kBlock; ++b) {
        const auto packed = hn::LoadU(d, bytes + b * kBlockBytes);
        const auto even = hn::TableLookupBytes(table, hn::And(packed, mask));
        const auto odd = hn::TableLookupBytes(
            table,
            hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(hn::FixedTag<uint16_t, 8>(), packed))),
                    mask));
        alignas(16) int8_t twice[kBlock];
        hn::Store(hn::BitCast(hn::FixedTag<int8_t, 16>(), hn::InterleaveLower(even, odd)),
                  hn::FixedTag<int8_t, 16>(), twice);
        hn::Store(hn::BitCast(hn::FixedTag<int8_t, 16>(),
                              hn::InterleaveUpper(hn::FixedTag<int8_t, 16>(), even, odd)),
                  hn::FixedTag<int8_t, 16>(), twice + 16);
        const Vec scale = set(0.5f * e8m0_to_f32(codes[b]));
        for (int k = 0; k < kBlock; k += kLanes) {
          const auto integers = hn::PromoteTo(I32(), hn::LoadU(d8, twice + k));
          store(hn::Mul(hn::ConvertTo(F32(), integers), scale), scratch + b * kBlock + k);
        }
      }
    }
    return scratch - size_t(outs) * depth;
  }
  int64_t tile_stride(int depth) const { return depth; }
};

static void exact(const Mxfp4LinearArgs& a, Queue& queue) {
  const auto group = [&](int g) {
    const Mxfp4LinearGroup& e = a.groups[g];
    return DotGroup<ExactWeights>{
        a.x + e.row_begin * a.x_stride, {e.blocks, e.scales, a.in_dim}, e.y, e.rows};
  };
  dot_groups<ExactWeights>(queue, a.num_groups, group, a.x_stride, a.y_stride, a.in_dim, a.out_dim, 0);
}

// ---- fast: activations ----

// Rounded rows in the workspace.
struct RoundedRows {
  // Of kChains blocks: magnitudes of the even columns, of the odd ones, then their masks of signs.
  static constexpr int kPartBytes = kChains * kBlockBytes, kStepBytes = 4 * kPartBytes;

  uint8_t* bytes;        // [rows, stride]           steps of kStepBytes
  float* halves;         // [rows, steps, kChains]   s / 2
  int32_t* corrections;  // [rows, steps, kChains]   sum of the magnitudes of negative values
  int blocks, steps;     // in a row
  int64_t stride;        // a line more than needed: rows of 4 KiB would meet in the same lines of L1

  RoundedRows(const Mxfp4LinearArgs& a)
      : blocks(a.in_dim / kBlock),
        steps((blocks + kChains - 1) / kChains),
        stride(int64_t(steps) * kStepBytes + 64) {
    bytes = static_cast<uint8_t*>(a.workspace);
    halves = reinterpret_cast<float*>(bytes + a.rows * stride);
    corrections = reinterpret_cast<int32_t*>(halves + int64_t(a.rows) * scale_stride());
  }
  int64_t scale_stride() const { return int64_t(steps) * kChains; }
  // Of block b, a multiple of kChains.
  const uint8_t* step_bytes(int64_t r, int b) const { return bytes + r * stride + b / kChains * kStepBytes; }
  const float* row_halves(int64_t r) const { return halves + r * scale_stride(); }
  const int32_t* row_corrections(int64_t r) const { return corrections + r * scale_stride(); }

  void round(int64_t r, const float* x) const {
    const I32 d;
    const hn::Rebind<uint8_t, F32> d8;
    const hn::Rebind<int8_t, F32> mask_d8;
    for (int b = 0; b < steps * kChains; ++b) {
      alignas(64) int16_t q[kBlock] = {};
      const float half = b < blocks ? round_block(x + b * kBlock, q) : 0;

      uint8_t* out = bytes + r * stride + b / kChains * kStepBytes + b % kChains * kBlockBytes;
      VecI32 negative = hn::Zero(d);
      for (int i = 0; i < kBlock / 2; i += kLanes) {
        const VecI32 pairs = hn::BitCast(d, hn::LoadU(I16(), q + 2 * i));
        const VecI32 columns[2] = {hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs)), hn::ShiftRight<16>(pairs)};
        for (int odd = 0; odd < 2; ++odd) {
          const VecI32 magnitude = hn::Abs(columns[odd]), mask = hn::ShiftRight<31>(columns[odd]);
          hn::StoreU(hn::DemoteTo(d8, magnitude), d8, out + odd * kPartBytes + i);
          hn::StoreU(hn::DemoteTo(mask_d8, mask), mask_d8,
                     reinterpret_cast<int8_t*>(out + (2 + odd) * kPartBytes + i));
          negative = hn::Add(negative, hn::And(magnitude, mask));
        }
      }
      halves[r * scale_stride() + b] = half;
      corrections[r * scale_stride() + b] = hn::GetLane(hn::SumOfLanes(d, negative));
    }
  }

 private:
  // Returns s / 2: 0 if the values are too small to matter, NaN if they are not finite; q stays zero then.
  static float round_block(const float* x, int16_t* q) {
    const I32 d;
    const hn::Rebind<int16_t, F32> d16;
    VecI32 largest_bits = hn::Zero(d);  // |x| orders like its bits, NaN above all
    for (int i = 0; i < kBlock; i += kLanes)
      largest_bits = hn::Max(largest_bits, hn::BitCast(d, hn::Abs(load(x + i))));
    const float largest = bits_to_f32(uint32_t(hn::GetLane(hn::MaxOfLanes(d, largest_bits))));
    const float s = largest / kMxfp4ActivationMax;
    if (s < kMxfp4ScaleMin) return 0;
    if (!(largest <= 3.402823466e38f)) return bits_to_f32(0x7fc00000);
    for (int i = 0; i < kBlock; i += kLanes)
      hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(hn::Div(load(x + i), set(s)))), d16, q + i);
    return 0.5f * s;
  }
};

// ---- fast: integer products ----

// dot_pair adds to each lane the four products of u8 activations and s8 weights in `even` and those in `odd`.
#if defined(__AVX512VNNI__)
static inline VecI32 dot_quad(VecI32 sum, VecU8 x, VecU8 w) {
  return VecI32{_mm512_dpbusd_epi32(sum.raw, x.raw, w.raw)};
}
static inline VecI32 dot_pair(VecI32 sum, VecU8 even_x, VecU8 odd_x, VecU8 even_w, VecU8 odd_w) {
  return dot_quad(dot_quad(sum, even_x, even_w), odd_x, odd_w);
}
#else
// i16 pair sums, at most 2 * 255 * 13 = 6,630 in magnitude: four of them may be added before they are
// widened.
using VecI16 = hn::Vec<I16>;
#if HWY_ARCH_X86
static inline VecI16 dot_pairs16(VecU8 x, VecU8 w) {
#if defined(__AVX512BW__)
  return VecI16{_mm512_maddubs_epi16(x.raw, w.raw)};
#elif defined(__AVX2__)
  return VecI16{_mm256_maddubs_epi16(x.raw, w.raw)};
#else
  return VecI16{_mm_maddubs_epi16(x.raw, w.raw)};
#endif
}
#else
static inline VecI16 dot_pairs16(VecU8 x, VecU8 w) {
  const I16 d;
  const hn::RebindToUnsigned<I16> unsigned_d;
  const VecI16 x_bytes = hn::BitCast(d, x), w_bytes = hn::BitCast(d, w);
  const VecI16 odd_x = hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(unsigned_d, x)));
  const VecI16 even =
      hn::Mul(hn::And(x_bytes, hn::Set(d, 0xff)), hn::ShiftRight<8>(hn::ShiftLeft<8>(w_bytes)));
  return hn::Add(even, hn::Mul(odd_x, hn::ShiftRight<8>(w_bytes)));
}
#endif
static inline VecI32 widen_add(VecI32 sum, VecI16 pairs) {
  const VecI32 p = hn::BitCast(I32(), pairs);
  return hn::Add(sum, hn::Add(hn::ShiftRight<16>(p), hn::ShiftRight<16>(hn::ShiftLeft<16>(p))));
}
static inline VecI32 dot_pair(VecI32 sum, VecU8 even_x, VecU8 odd_x, VecU8 even_w, VecU8 odd_w) {
  return widen_add(sum, hn::Add(dot_pairs16(even_x, even_w), dot_pairs16(odd_x, odd_w)));
}
#endif

// ---- fast: few rows ----

constexpr int kFewRows = 4;
constexpr size_t kBytesAhead = 3 << 10;  // enough to hide the latency of memory
constexpr size_t kTileBytesL1 = 8 << 10;
constexpr int kScaleRun = 16;  // blocks whose scales are transposed at a time

// {sum of each part of a, of b, of c, of d} in each 128-bit part.
static inline VecI32 sum4_parts(VecI32 a, VecI32 b, VecI32 c, VecI32 d) {
  const I32 tag;
  const hn::Repartition<int64_t, F32> pairs;
  const auto ab = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b)));
  const auto cd = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d)));
  return hn::Add(hn::BitCast(tag, hn::InterleaveLower(pairs, ab, cd)),
                 hn::BitCast(tag, hn::InterleaveUpper(pairs, ab, cd)));
}

// The scales of kScaleRun blocks of four outputs, as [block][output].
static inline void transpose_scales(const uint8_t* s0, const uint8_t* s1, const uint8_t* s2,
                                    const uint8_t* s3, uint8_t* out) {
  const U8x16 d;
  const hn::FixedTag<uint16_t, 8> d16;
  const auto v0 = hn::LoadU(d, s0), v1 = hn::LoadU(d, s1), v2 = hn::LoadU(d, s2), v3 = hn::LoadU(d, s3);
  const auto lower01 = hn::BitCast(d16, hn::InterleaveLower(d, v0, v1));
  const auto upper01 = hn::BitCast(d16, hn::InterleaveUpper(d, v0, v1));
  const auto lower23 = hn::BitCast(d16, hn::InterleaveLower(d, v2, v3));
  const auto upper23 = hn::BitCast(d16, hn::InterleaveUpper(d, v2, v3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d16, lower01, lower23)), d, out);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d16, lower01, lower23)), d, out + 16);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d16, upper01, upper23)), d, out + 32);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d16, upper01, upper23)), d, out + 48);
}

// Blocks [b, b + kChains) of R rows and four outputs; the parts of `valid` say which blocks exist.
template <int R, bool kWhole>
static inline void few_rows_step(const RoundedRows& x, int64_t row, int b, const uint8_t* const (&w)[4],
                                 Vec weight_scale, hn::Mask<F32> valid, Vec (&sums)[R]) {
  const U8 d8;
  const I32 d32;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(kTwice));
  VecU8 even_w[4], odd_w[4];
#pragma GCC unroll 4
  for (int o = 0; o < 4; ++o) {
    const VecU8 packed = hn::LoadU(d8, w[o]);
    even_w[o] = hn::TableLookupBytes(table, low_nibbles(packed));
    odd_w[o] = hn::TableLookupBytes(table, high_nibbles(packed));
  }
  // Lane i takes value i / 4 of four.
  alignas(64) static constexpr int32_t kPart[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const auto part = hn::SetTableIndices(d32, kPart);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const uint8_t* parts = x.step_bytes(row + r, b);
    VecU8 part_x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) part_x[i] = hn::LoadU(d8, parts + size_t(i) * RoundedRows::kPartBytes);
    VecI32 dots[4];
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o)
      dots[o] = dot_pair(hn::Zero(d32), part_x[0], part_x[1], hn::Xor(even_w[o], part_x[2]),
                         hn::Xor(odd_w[o], part_x[3]));
    const VecI32 corrections =
        hn::TableLookupLanes(hn::LoadDup128(d32, x.row_corrections(row + r) + b), part);
    const Vec four_halves = hn::LoadDup128(F32(), x.row_halves(row + r) + b);
    const Vec halves = hn::BitCast(F32(), hn::TableLookupLanes(hn::BitCast(d32, four_halves), part));
    const VecI32 block_sums = hn::Add(sum4_parts(dots[0], dots[1], dots[2], dots[3]), corrections);
    const Vec sum = fma(hn::ConvertTo(F32(), block_sums), hn::Mul(halves, weight_scale), sums[r]);
    sums[r] = kWhole ? sum : hn::IfThenElse(valid, sum, sums[r]);
  }
}

// Four outputs of R rows.
template <int R>
static void few_rows_tile(const RoundedRows& x, int64_t row, const uint8_t* const (&w)[4],
                          const uint8_t* const (&s)[4], Vec4 (&out)[R]) {
  Vec sums[R];
  for (int r = 0; r < R; ++r) sums[r] = zero();
  const auto all = hn::FirstN(F32(), kLanes);
  alignas(64) uint8_t codes[kScaleRun * 4];
  // The rows of the tiles to come follow those of this one: fetch them line by line, in the order of memory,
  // into L1 or, when they would fill it, into L2.
  const size_t tile_bytes = 4 * size_t(x.blocks) * kBlockBytes;
  const uint8_t* ahead = w[0] + (1 + kBytesAhead / tile_bytes) * tile_bytes;
  const bool into_l1 = tile_bytes <= kTileBytesL1;
  int b = 0;
  for (; b + kScaleRun <= x.blocks; b += kScaleRun) {
    transpose_scales(s[0] + b, s[1] + b, s[2] + b, s[3] + b, codes);
#pragma GCC unroll 4
    for (int j = 0; j < kScaleRun; j += kChains) {
      const int offset = (b + j) * kBlockBytes;
      const uint8_t* const at[4] = {w[0] + offset, w[1] + offset, w[2] + offset, w[3] + offset};
      for (int line = 0; line < kChains; ++line, ahead += 64) into_l1 ? prefetch(ahead) : prefetch_l2(ahead);
      few_rows_step<R, true>(x, row, b + j, at, scales_to_f32(codes + 4 * j), all, sums);
    }
  }
  if (b < x.blocks) {
    const int rest = x.blocks - b;
    uint8_t padded[4][kScaleRun] = {};
    for (int o = 0; o < 4; ++o)
      for (int j = 0; j < rest; ++j) padded[o][j] = s[o][b + j];
    transpose_scales(padded[0], padded[1], padded[2], padded[3], codes);
    for (int j = 0; j < rest; j += kChains) {
      const int blocks = rest - j < kChains ? rest - j : kChains;
      uint8_t bytes[4][kChains * kBlockBytes] = {};
      for (int o = 0; o < 4; ++o)
        memcpy(bytes[o], w[o] + (b + j) * kBlockBytes, size_t(blocks) * kBlockBytes);
      const uint8_t* const at[4] = {bytes[0], bytes[1], bytes[2], bytes[3]};
      few_rows_step<R, false>(x, row, b + j, at, scales_to_f32(codes + 4 * j),
                              hn::FirstN(F32(), size_t(blocks) * 4), sums);
    }
  }
  for (int r = 0; r < R; ++r) out[r] = sum_blocks(F32(), sums[r]);
}

template <int R>
static void few_rows_fast(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& g, const RoundedRows& x,
                          int o_begin, int o_end, int r) {
  for (int o = o_begin; o < o_end; o += 4) {
    const uint8_t *w[4], *s[4];
    for (int j = 0; j < 4; ++j) {
      const size_t out =
          size_t(o + j < o_end ? o + j : o_end - 1);  // past the end the last output is repeated
      w[j] = g.blocks + out * size_t(a.in_dim / 2);
      s[j] = g.scales + out * size_t(x.blocks);
    }
    const uint8_t* const w4[4] = {w[0], w[1], w[2], w[3]};
    const uint8_t* const s4[4] = {s[0], s[1], s[2], s[3]};
    Vec4 sums[R];
    few_rows_tile<R>(x, g.row_begin + r, w4, s4, sums);
    for (int j = 0; j < R; ++j) {
      float* y = g.y + (r + j) * a.y_stride + o;
      if (o + 4 <= o_end) {
        hn::StoreU(sums[j], F32x4(), y);
      } else {
        float values[4];
        hn::StoreU(sums[j], F32x4(), values);
        for (int k = 0; o + k < o_end; ++k) y[k] = values[k];
      }
    }
  }
}

// ---- fast: many rows ----

#if defined(__AVX512VNNI__)
constexpr int kFastRowTile = 6, kFastVectors = 2;
#else
constexpr int kFastRowTile = kLanes == 16 ? 8 : 4, kFastVectors = 1;
#endif
constexpr int kFastRowBlock = 192;  // rows whose chains wait on the stack: 96 KiB with four chains
constexpr int kRunBlocks = 64;      // blocks that are unpacked at a time: 72 KiB with their scales
constexpr int kQuads = kBlock / 4;
constexpr int kOutVectors = kOutBlock / kLanes;

struct Unpacked {
  alignas(64) uint8_t quads[kOutVectors][kRunBlocks][kQuads][kLanes][4];
  alignas(64) float scales[kOutVectors][kRunBlocks][kLanes];
};

// Blocks [b, b + blocks) of kLanes outputs, the last one repeated past the end.
static void unpack(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& g, int o, int b, int blocks, int v,
                   Unpacked& u) {
  const U8 d8;
  const U32 d32;
  const hn::Repartition<uint64_t, F32> d64;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(kTwice));
  const uint8_t *w[kLanes], *s[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    const size_t out = size_t(o + j < a.out_dim ? o + j : a.out_dim - 1);
    w[j] = g.blocks + out * size_t(a.in_dim / 2) + size_t(b) * kBlockBytes;
    s[j] = g.scales + out * size_t(a.in_dim / kBlock) + b;
  }
  for (int k = 0; k < blocks; ++k) {
    // rows[i] holds outputs i, i + 4, i + 8, ... in its parts: a 4 x 4 transpose of each part puts outputs in
    // order.
    hn::Vec<U32> rows[4];
    for (int i = 0; i < 4; ++i) {
#if HWY_TARGET == HWY_AVX3
      const auto bytes = [&](int j) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(w[j] + k * kBlockBytes));
      };
      __m512i row = _mm512_castsi128_si512(bytes(i));
      row = _mm512_inserti32x4(row, bytes(i + 4), 1);
      row = _mm512_inserti32x4(row, bytes(i + 8), 2);
      rows[i] = hn::Vec<U32>{_mm512_inserti32x4(row, bytes(i + 12), 3)};
#else
      alignas(64) uint8_t parts[kLanes / 4 * 16];
      for (int j = 0; j < kLanes / 4; ++j) memcpy(parts + 16 * j, w[i + 4 * j] + k * kBlockBytes, 16);
      rows[i] = hn::BitCast(d32, hn::Load(d8, parts));
#endif
    }
    const auto lower01 = hn::BitCast(d64, hn::InterleaveLower(d32, rows[0], rows[1]));
    const auto upper01 = hn::BitCast(d64, hn::InterleaveUpper(d32, rows[0], rows[1]));
    const auto lower23 = hn::BitCast(d64, hn::InterleaveLower(d32, rows[2], rows[3]));
    const auto upper23 = hn::BitCast(d64, hn::InterleaveUpper(d32, rows[2], rows[3]));
    const VecU8 columns[4] = {hn::BitCast(d8, hn::InterleaveLower(d64, lower01, lower23)),
                              hn::BitCast(d8, hn::InterleaveUpper(d64, lower01, lower23)),
                              hn::BitCast(d8, hn::InterleaveLower(d64, upper01, upper23)),
                              hn::BitCast(d8, hn::InterleaveUpper(d64, upper01, upper23))};
    for (int i = 0; i < 4; ++i) {
      hn::Store(hn::TableLookupBytes(table, low_nibbles(columns[i])), d8, u.quads[v][k][i][0]);
      hn::Store(hn::TableLookupBytes(table, high_nibbles(columns[i])), d8, u.quads[v][k][4 + i][0]);
    }
    uint8_t codes[kLanes];
    for (int j = 0; j < kLanes; ++j) codes[j] = s[j][k];
    store(scales_to_f32(codes), u.scales[v][k]);
  }
}

static inline VecU8 broadcast_quad(const uint8_t* values) {
  int32_t quad;
  memcpy(&quad, values, sizeof quad);
  return hn::BitCast(U8(), hn::Set(I32(), quad));
}

// The block sums of R rows x V vectors of outputs; `sums` starts with the corrections, `x` points to the even
// magnitudes of each row.
template <int R, int V>
static inline void block_tile(const Unpacked& u, int v, int k, const uint8_t* const (&x)[R],
                              VecI32 (&sums)[R][V]) {
  constexpr int kPart = RoundedRows::kPartBytes;
  const U8 d8;
#if defined(__AVX512VNNI__)
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    const int at = q / 4 * kPart + q % 4 * 4;
    VecU8 w[V];
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) w[j] = hn::Load(d8, u.quads[v + j][k][q][0]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VecU8 magnitude = broadcast_quad(x[r] + at), sign = broadcast_quad(x[r] + at + 2 * kPart);
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) sums[r][j] = dot_quad(sums[r][j], magnitude, hn::Xor(w[j], sign));
    }
  }
#else
  static_assert(V == 1);
#pragma GCC unroll 2
  for (int q = 0; q < kQuads; q += 4) {
    VecU8 w[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) w[j] = hn::Load(d8, u.quads[v][k][q + j][0]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const uint8_t* quads = x[r] + q / 4 * kPart;
      const auto products = [&](int j) {
        return dot_pairs16(broadcast_quad(quads + 4 * j),
                           hn::Xor(w[j], broadcast_quad(quads + 2 * kPart + 4 * j)));
      };
      sums[r][0] = widen_add(sums[r][0],
                             hn::Add(hn::Add(products(0), products(1)), hn::Add(products(2), products(3))));
    }
  }
#endif
}

using Chains = float[kChains][kOutBlock];  // of one row

// Adds a run of blocks to the chains of R rows; `x`, `corrections` and `halves` point to its begin in the first row.
// Not inlined: among the loops around it compilers run out of registers.
template <int R>
[[gnu::noinline]] static void run_tile(const Unpacked& u, int v, int blocks, const uint8_t* x,
                                       int64_t x_stride, const int32_t* corrections, const float* halves,
                                       int64_t scale_stride, Chains* kept) {
  constexpr int V = kFastVectors;
  for (int c = 0; c < kChains && c < blocks; ++c) {
    Vec chain[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) chain[r][j] = load(kept[r][c] + (v + j) * kLanes);
    for (int k = c; k < blocks; k += kChains) {
      const uint8_t* values[R];
      VecI32 sums[R][V];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const uint8_t* step = x + r * x_stride + k / kChains * RoundedRows::kStepBytes;
        values[r] = step + c * kBlockBytes;
        prefetch(step + R * x_stride + c * 64);  // a part of the rows to come
#pragma GCC unroll 4
        for (int j = 0; j < V; ++j) sums[r][j] = hn::Set(I32(), corrections[r * scale_stride + k]);
      }
      block_tile<R, V>(u, v, k, values, sums);
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) {
        const Vec weight_scale = hn::Load(F32(), u.scales[v + j][k]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          chain[r][j] = fma(hn::ConvertTo(F32(), sums[r][j]),
                            hn::Mul(set(halves[r * scale_stride + k]), weight_scale), chain[r][j]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) store(chain[r][j], kept[r][c] + (v + j) * kLanes);
  }
}

// Outputs [o, o + outs) of rows [r_begin, r_begin + rows) of a group, at most kFastRowBlock rows.
static void many_rows_fast(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& g, const RoundedRows& x, int o,
                           int outs, int r_begin, int rows) {
  Unpacked u;
  alignas(64) Chains kept[kFastRowBlock];
  memset(kept, 0, size_t(rows) * sizeof(Chains));
  const int vectors = (outs + kLanes * kFastVectors - 1) / (kLanes * kFastVectors) * kFastVectors;
  for (int b = 0; b < x.blocks; b += kRunBlocks) {
    const int blocks = x.blocks - b < kRunBlocks ? x.blocks - b : kRunBlocks;
    for (int v = 0; v < vectors; ++v) unpack(a, g, o + v * kLanes, b, blocks, v, u);
    for (int r = 0; r < rows; r += kFastRowTile)
      with_rows<kFastRowTile>(rows - r < kFastRowTile ? rows - r : kFastRowTile, [&](auto tile_rows) {
        const int64_t row = g.row_begin + r_begin + r;
        for (int v = 0; v < vectors; v += kFastVectors)
          run_tile<tile_rows()>(u, v, blocks, x.step_bytes(row, b), x.stride, x.row_corrections(row) + b,
                                x.row_halves(row) + b, x.scale_stride(), kept + r);
      });
  }

  for (int r = 0; r < rows; ++r) {
    float* y = g.y + (r_begin + r) * a.y_stride + o;
    for (int j = 0; j < outs; j += kLanes) {
      Vec chains[kChains];
      for (int c = 0; c < kChains; ++c) chains[c] = load(kept[r][c] + j);
      for (int half = kChains / 2; half > 0; half /= 2)
        for (int c = 0; c < half; ++c) chains[c] = hn::Add(chains[c], chains[c + half]);
      if (j + kLanes <= outs)
        store(chains[0], y + j);
      else
        store(chains[0], y + j, size_t(outs - j));
    }
  }
}

static void fast(const Mxfp4LinearArgs& a, Queue& queue) {
  const RoundedRows x(a);
  queue.parallel_for(a.rows, [&](int64_t r) { x.round(r, a.x + r * a.x_stride); });

  int rows_max = 0;
  for (int g = 0; g < a.num_groups; ++g) rows_max = a.groups[g].rows > rows_max ? a.groups[g].rows : rows_max;
  if (rows_max == 0 || a.out_dim == 0) return;

  // With few items and many rows, the rows are split too.
  const int64_t runs = (a.out_dim + kOutBlock - 1) / kOutBlock;
  int64_t parts = queue.threads() == 1 ? 1 : 4 * queue.threads() / (runs * a.num_groups) + 1;
  const int64_t parts_max = (rows_max + kFastRowBlock - 1) / kFastRowBlock;
  if (parts > parts_max) parts = parts_max;

  queue.parallel_for(a.num_groups * runs * parts, [&](int64_t item) {
    const Mxfp4LinearGroup& g = a.groups[item / (runs * parts)];
    const int o = int(item / parts % runs) * kOutBlock;
    const int outs = a.out_dim - o < kOutBlock ? a.out_dim - o : kOutBlock;
    const int begin = int(g.rows * (item % parts) / parts), end = int(g.rows * (item % parts + 1) / parts);
    const int rows = end - begin;
    if (rows == 0) return;
    if (rows <= kFewRows) {
      with_rows<kFewRows>(rows,
                          [&](auto tile_rows) { few_rows_fast<tile_rows()>(a, g, x, o, o + outs, begin); });
      return;
    }
    const int blocks = (rows + kFastRowBlock - 1) / kFastRowBlock;
    const int block = ((rows + blocks - 1) / blocks + kFastRowTile - 1) / kFastRowTile * kFastRowTile;
    for (int r = 0; r < rows; r += block)
      many_rows_fast(a, g, x, o, outs, begin + r, rows - r < block ? rows - r : block);
  });
}

void mxfp4_linear(const Mxfp4LinearArgs& a, Queue& queue) {
  if (a.route == Route::exact)
    exact(a, queue);
  else
    fast(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
