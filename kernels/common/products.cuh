// kernels/common/products.cuh: rows times a weight matrix on the tensor cores, exact to f32: what linear, head_linear,
// expert_linear and mxfp4_linear share.
//
// Weights are the 16-row operand of mma.m16n8k16, activations its 8 columns, so that up to 8 rows cost one reading of
// the weights. Both operands are bf16 pieces whose sum is the value: 3 pieces for an f32 (8 + 8 + 8 bits), 1 for a
// weight that bf16 holds exactly, 1 for an activation that may be rounded. Products of pieces are exact; sums are f32.
//
// Which four values of a row a lane holds is free as long as both operands agree, so each lane reads 16 bytes of
// consecutive weights. A block owns 16 * kTilesM outputs; its warps take turns at stretches of inputs and are
// added at the end: the order of a sum depends on in_dim alone, never on the number of rows.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kProductWarps = 8;
constexpr int kStretch = 128;  // inputs; sums of a stretch are tensor core sums, the rest is f32
constexpr int kMxfp4Stretch = 256;

__device__ inline uint32_t pack(bf16 low, bf16 high) { return low.bits | uint32_t(high.bits) << 16; }

// Two values, cut into kPieces pairs of bf16 that add up to them; a single piece is rounded.
template <int kPieces>
__device__ void cut(float low, float high, uint32_t (&pieces)[kPieces]) {
  if constexpr (kPieces == 1) {
    pieces[0] = round_to_bf16x2(low, high);
  } else {
    const auto rest = [](float& value) {  // takes the upper bits off and leaves what is below them
      const uint32_t top = f32_to_bits(value) & 0xffff0000u;
      const bool finite = fabsf(value) <= 3.402823466e38f;
      const uint32_t bits = value == value ? top : 0x7fc00000u;
      value = finite ? value - bits_to_f32(top) : 0.f;
      return bits >> 16;
    };
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint32_t first = rest(low), second = rest(high);
      pieces[i] = first | second << 16;
    }
  }
}

// Weight formats. Each lane reads `Raw`, kRun consecutive weights of one row, which are kVectors times 16 bytes and, kScaled,
// a byte beside them; eight of the weights, one octet, feed two mma.
// octet() gives their pairs, piece by piece: pairs 0 and 1 for the first mma, 2 and 3 for the second.
// The members of pair i are 2 i and 2 i + 1 of the octet, or, kApart, i and i + 4.
struct Bf16Weights {
  static constexpr int kRun = 8, kPieces = 1, kVectors = 1, kBits = 16, kStretch = dsa::kStretch;
  static constexpr bool kApart = false, kScaled = false, kTransposed = false;
  using Raw = uint4;
  const bf16* data;  // [out_dim, row_stride], or [in_dim, row_stride] if transposed
  int64_t row_stride;
  bool transposed = false;

  __host__ __device__ bool aligned(int in_dim) const {
    return !transposed && in_dim % kRun == 0 && row_stride % kRun == 0 && uint64_t(data) % 16 == 0;
  }
  __device__ const void* address(int64_t o, int k) const { return data + o * row_stride + k; }
  __device__ static Raw raw(const uint4 (&vectors)[1], uint32_t) { return vectors[0]; }
  __device__ Raw read(int64_t o, int k) const { return __ldg(static_cast<const uint4*>(address(o, k))); }
  __device__ Raw read_some(int64_t o, int k, int in_dim) const {
    uint32_t pairs[4];
    const auto value = [&](int i) {
      if (i >= in_dim) return bf16{0};
      return transposed ? data[i * row_stride + o] : data[o * row_stride + i];
    };
    for (int i = 0; i < 4; ++i) pairs[i] = pack(value(k + 2 * i), value(k + 2 * i + 1));
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
  __device__ void octet(const Raw& raw, int, uint32_t (&pairs)[4][1], bool&) const {
    pairs[0][0] = raw.x, pairs[1][0] = raw.y, pairs[2][0] = raw.z, pairs[3][0] = raw.w;
  }
  __device__ float scale(int64_t, int) const { return 1; }
};

// The same, read in_dim rows at a time.
struct TransposedBf16Weights : Bf16Weights {
  static constexpr bool kTransposed = true;
  __host__ __device__ bool aligned(int out_dim) const {
    return out_dim % 8 == 0 && row_stride % 8 == 0 && uint64_t(data) % 16 == 0;
  }
};

struct F32Weights {
  static constexpr int kRun = 8, kPieces = 3, kVectors = 2, kBits = 32, kStretch = dsa::kStretch;
  static constexpr bool kApart = false, kScaled = false, kTransposed = false;
  struct Raw {
    float4 low, high;
  };
  const float* data;  // as in Bf16Weights
  int64_t row_stride;
  bool transposed = false;

  __host__ __device__ bool aligned(int in_dim) const {
    return !transposed && in_dim % kRun == 0 && row_stride % 4 == 0 && uint64_t(data) % 16 == 0;
  }
  __device__ const void* address(int64_t o, int k) const { return data + o * row_stride + k; }
  __device__ static Raw raw(const uint4 (&vectors)[2], uint32_t) {
    const auto floats = [](const uint4& v) {
      return float4{bits_to_f32(v.x), bits_to_f32(v.y), bits_to_f32(v.z), bits_to_f32(v.w)};
    };
    return {floats(vectors[0]), floats(vectors[1])};
  }
  __device__ Raw read(int64_t o, int k) const {
    const auto* row = static_cast<const float4*>(address(o, k));
    return {__ldg(row), __ldg(row + 1)};
  }
  __device__ Raw read_some(int64_t o, int k, int in_dim) const {
    float v[8];
    for (int i = 0; i < 8; ++i)
      v[i] = k + i >= in_dim ? 0.f
             : transposed    ? data[(k + i) * row_stride + o]
                             : data[o * row_stride + k + i];
    return {{v[0], v[1], v[2], v[3]}, {v[4], v[5], v[6], v[7]}};
  }
  __device__ void octet(const Raw& raw, int, uint32_t (&pairs)[4][3], bool&) const {
    cut(raw.low.x, raw.low.y, pairs[0]), cut(raw.low.z, raw.low.w, pairs[1]);
    cut(raw.high.x, raw.high.y, pairs[2]), cut(raw.high.z, raw.high.w, pairs[3]);
  }
  __device__ float scale(int64_t, int) const { return 1; }
};

struct Fp8Weights {
  static constexpr int kRun = 16, kPieces = 1, kVectors = 1, kBits = 8, kStretch = dsa::kStretch;
  static constexpr bool kApart = false, kScaled = false, kTransposed = false;
  using Raw = uint4;
  const uint8_t* data;  // [out_dim, in_dim]
  const float* scales;  // [ceil(out_dim / 128), ceil(in_dim / 128)]
  int64_t row_stride;

  __host__ __device__ bool aligned(int in_dim) const {
    return in_dim % kRun == 0 && uint64_t(data) % 16 == 0;
  }
  __device__ const void* address(int64_t o, int k) const { return data + o * row_stride + k; }
  __device__ static Raw raw(const uint4 (&vectors)[1], uint32_t) { return vectors[0]; }
  __device__ Raw read(int64_t o, int k) const { return __ldg(static_cast<const uint4*>(address(o, k))); }
  __device__ Raw read_some(int64_t o, int k, int in_dim) const {
    uint32_t words[4] = {};
    for (int i = 0; i < 16; ++i)
      if (k + i < in_dim) words[i / 4] |= uint32_t(data[o * row_stride + k + i]) << i % 4 * 8;
    return {words[0], words[1], words[2], words[3]};
  }
  // The seven bits of a magnitude, read as bf16, are 2^-120 of it.
  __device__ static uint32_t decode(uint32_t bytes_high) {
    const uint32_t bits = (bytes_high & 0x80008000u) | (bytes_high >> 4 & 0x07f007f0u);
    return multiply_bf16x2(bits, 0x7b807b80u);
  }
  __device__ void octet(const Raw& raw, int i, uint32_t (&pairs)[4][1], bool& nan) const {
    const uint32_t words[2] = {i == 0 ? raw.x : raw.z, i == 0 ? raw.y : raw.w};
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      nan |= (((words[w] & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
      pairs[2 * w][0] = decode(__byte_perm(words[w], 0, 0x1404));
      pairs[2 * w + 1][0] = decode(__byte_perm(words[w], 0, 0x3424));
    }
  }
  __device__ float scale(int64_t o, int k) const {
    return scales[o / kFp8Block * ((row_stride + kFp8Block - 1) / kFp8Block) + k / kFp8Block];
  }
};

struct Mxfp4Weights {
  static constexpr int kRun = 32, kPieces = 1, kVectors = 1, kBits = 4, kStretch = kMxfp4Stretch;
  static constexpr bool kApart = true, kScaled = true, kTransposed = false;
  struct Raw {
    uint4 codes;
    uint32_t scale;
  };
  const uint8_t* blocks;  // [out_dim, in_dim / 2]
  const uint8_t* scales;  // [out_dim, in_dim / 32]
  int64_t row_stride;     // in_dim

  __host__ __device__ bool aligned(int) const { return uint64_t(blocks) % 16 == 0; }
  __device__ const void* address(int64_t o, int k) const { return blocks + (o * row_stride + k) / 2; }
  __device__ const uint8_t* scale_address(int64_t o, int k) const {
    return scales + (o * row_stride + k) / kMxfp4Block;
  }
  __device__ static Raw raw(const uint4 (&vectors)[1], uint32_t scale) { return {vectors[0], scale}; }
  __device__ Raw read(int64_t o, int k) const {
    return {__ldg(static_cast<const uint4*>(address(o, k))), *scale_address(o, k)};
  }
  __device__ Raw read_some(int64_t o, int k, int in_dim) const {
    uint32_t words[4] = {};
    if (k >= in_dim) return {};
    for (int i = 0; i < 16; ++i) words[i / 4] |= uint32_t(blocks[(o * row_stride + k) / 2 + i]) << i % 4 * 8;
    return {{words[0], words[1], words[2], words[3]}, scales[(o * row_stride + k) / kMxfp4Block]};
  }
  // The three bits of a magnitude, read as the lowest of a bf16 exponent and the highest of its fraction, are 2^-126
  // of it, subnormals included. The scale is an exact bf16 as well. kLarge: it may be above 128.
  template <bool kLarge = true>
  __device__ void octet(const Raw& raw, int i, uint32_t (&pairs)[4][1], bool& nan) const {
    const uint32_t word = i == 0 ? raw.codes.x : i == 1 ? raw.codes.y : i == 2 ? raw.codes.z : raw.codes.w;
    if (kLarge) nan |= raw.scale == 255;
    // 2^126 * 2^(scale - 127) is beyond bf16 if scale is above 128: the rest of it is a second factor then.
    const uint32_t factor = bf16x2_power(min(raw.scale, 128u) + 126);
    pairs[0][0] = (word << 12 & 0x80008000u) | (word << 6 & 0x01c001c0u);
    pairs[1][0] = (word << 8 & 0x80008000u) | (word << 2 & 0x01c001c0u);
    pairs[2][0] = (word << 4 & 0x80008000u) | (word >> 2 & 0x01c001c0u);
    pairs[3][0] = (word & 0x80008000u) | (word >> 6 & 0x01c001c0u);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      pairs[pair][0] = multiply_bf16x2(pairs[pair][0], factor);
      if (kLarge && raw.scale > 128)
        pairs[pair][0] = multiply_bf16x2(pairs[pair][0], bf16x2_power(raw.scale - 1));
    }
  }
  // 2^(exponent - 127), twice.
  __device__ static uint32_t bf16x2_power(uint32_t exponent) { return exponent * 0x00800080u; }
  __device__ float scale(int64_t, int) const { return 1; }
};

// Adds the parts that the warps hold, in their order, and writes the outputs. A broken weight of a row has been seen by
// one of the four lanes that share it. `sums` is kProductSums floats of shared memory.
template <int kTilesM, int kTilesN>
constexpr int kProductSums = kProductWarps* kTilesM * 16 * kTilesN * 8;
template <int kTilesM, int kTilesN>
__device__ void add_warps(const float (&total)[kTilesM][kTilesN][4], const bool (&nan)[kTilesM][2], float* y,
                          int64_t y_stride, int rows, int out_dim, int o_begin, int r_begin, float* sums) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;
  constexpr int kOutputs = 16 * kTilesM, kRows = 8 * kTilesN;
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    const unsigned lanes = 15u << 4 * group;
    const bool nan_low = __ballot_sync(kAllLanes, nan[m][0]) & lanes,
               nan_high = __ballot_sync(kAllLanes, nan[m][1]) & lanes;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = 8 * n + 2 * quad + i % 2, o = 16 * m + 8 * (i / 2) + group;
        sums[(warp * kRows + r) * kOutputs + o] = (i < 2 ? nan_low : nan_high) ? NAN : total[m][n][i];
      }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kOutputs; i += kProductWarps * kWarp) {
    const int r = r_begin + i / kOutputs, o = o_begin + i % kOutputs;
    if (r >= rows || o >= out_dim) continue;
    float sum = 0;
    for (int part = 0; part < kProductWarps; ++part) sum += sums[part * kRows * kOutputs + i];
    y[r * y_stride + o] = sum;
  }
}

// y[r, o] for the 16 * kTilesM outputs from o_begin and the 8 * kTilesN rows from r_begin. Every thread of the block
// calls this; `sums` is kProductSums floats of shared memory.
template <int kTilesM, int kTilesN, int kPiecesX, bool kAligned, class Weights>
__device__ void product_tile(const Weights& w, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                             int rows, int in_dim, int out_dim, int o_begin, int r_begin, float* sums) {
  constexpr int kRun = Weights::kRun, kPiecesW = Weights::kPieces, kStretch = Weights::kStretch,
                kRuns = kStretch / (4 * kRun);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, quad = lane % 4;

  float total[kTilesM][kTilesN][4] = {};
  bool nan[kTilesM][2] = {};
  for (int begin = warp * kStretch; begin < in_dim; begin += kProductWarps * kStretch) {
    typename Weights::Raw raw[kRuns][kTilesM][2];
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int m = 0; m < kTilesM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int o = o_begin + 16 * m + 8 * half + group, k = begin + (4 * run + quad) * kRun;
          if (o >= out_dim || k >= in_dim)
            raw[run][m][half] = {};
          else if constexpr (kAligned)
            raw[run][m][half] = w.read(o, k);
          else
            raw[run][m][half] = w.read_some(o, k, in_dim);
        }

    float stretch[kTilesM][kTilesN][4] = {};
#pragma unroll
    for (int run = 0; run < kRuns; ++run)
#pragma unroll
      for (int octet = 0; octet < kRun / 8; ++octet) {
        const int k = begin + (4 * run + quad) * kRun + 8 * octet;
        uint32_t b[kTilesN][4][kPiecesX];
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) {
          const int r = r_begin + 8 * n + group;
          float value[8] = {};
          if (r < rows && k < in_dim) {
            const float* at = x + r * x_stride + k;
            if constexpr (kAligned) {
              const float4 low = *reinterpret_cast<const float4*>(at);
              const float4 high = *reinterpret_cast<const float4*>(at + 4);
              value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
              value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
            } else {
#pragma unroll
              for (int i = 0; i < 8; ++i)
                if (k + i < in_dim) value[i] = at[i];
            }
          }
#pragma unroll
          for (int pair = 0; pair < 4; ++pair)
            cut(value[Weights::kApart ? pair : 2 * pair], value[Weights::kApart ? pair + 4 : 2 * pair + 1],
                b[n][pair]);
        }
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          uint32_t low[4][kPiecesW], high[4][kPiecesW];
          w.octet(raw[run][m][0], octet, low, nan[m][0]);
          w.octet(raw[run][m][1], octet, high, nan[m][1]);
#pragma unroll
          for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < kPiecesW; ++i) {
              const uint32_t a[4] = {low[2 * half][i], high[2 * half][i], low[2 * half + 1][i],
                                     high[2 * half + 1][i]};
#pragma unroll
              for (int n = 0; n < kTilesN; ++n)
#pragma unroll
                for (int j = 0; j + i < (kPiecesX > kPiecesW ? kPiecesX : kPiecesW) && j < kPiecesX; ++j) {
                  const uint32_t column[2] = {b[n][2 * half][j], b[n][2 * half + 1][j]};
                  mma(stretch[m][n], a, column);
                }
            }
        }
      }
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      const int o = o_begin + 16 * m + group;
      const float scale_low = o < out_dim ? w.scale(o, begin) : 0,
                  scale_high = o + 8 < out_dim ? w.scale(o + 8, begin) : 0;
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        total[m][n][0] += scale_low * stretch[m][n][0], total[m][n][1] += scale_low * stretch[m][n][1];
        total[m][n][2] += scale_high * stretch[m][n][2], total[m][n][3] += scale_high * stretch[m][n][3];
      }
    }
  }

  add_warps<kTilesM, kTilesN>(total, nan, y, y_stride, rows, out_dim, o_begin, r_begin, sums);
}

// The rows [0, rows) of one matrix of weights: x and y are those of row 0.
template <int kTilesM, int kTilesN, int kPiecesX, class Weights>
__device__ void product_rows(const Weights& w, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                             int rows, int in_dim, int out_dim, int r_first, int r_step) {
  __shared__ float sums[kProductSums<kTilesM, kTilesN>];
  const int o_begin = blockIdx.x * 16 * kTilesM;
  const bool aligned = w.aligned(in_dim) && in_dim % 8 == 0 && x_stride % 4 == 0 && uint64_t(x) % 16 == 0;
  for (int r = r_first * 8 * kTilesN; r < rows; r += r_step * 8 * kTilesN) {
    if (aligned)
      product_tile<kTilesM, kTilesN, kPiecesX, true>(w, x, x_stride, y, y_stride, rows, in_dim, out_dim,
                                                     o_begin, r, sums);
    else
      product_tile<kTilesM, kTilesN, kPiecesX, false>(w, x, x_stride, y, y_stride, rows, in_dim, out_dim,
                                                      o_begin, r, sums);
  }
}

}  // namespace dsa
