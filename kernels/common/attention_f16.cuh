// kernels/common/attention_f16.cuh: attention of 128 queries in one block on the tensor cores: queries, keys, values and the
// weights of the softmax are rounded to f16, sums are f32. A warp owns 16 queries, and the keys come in tiles of 64.
//
// Tiles begin at multiples of 64 positions, so that the bits of a query depend on its own positions alone.
//
// Fragments. Which channels a lane multiplies, which keys are the columns of scores and which channels those of outputs is
// free as long as both factors agree, so that every thread reads whole float4 and writes whole uint4:
//   scores   lane 4 g + q multiplies channels 32 j + 8 q .. + 7 in steps 2 j and 2 j + 1 of 16
//   keys     column g of tile 2 i + e is key 16 i + 4 (g / 2) + 2 e + g % 2
//   outputs  column g of tile 4 b + n is channel 32 b + 4 g + n
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kF16Warps = 8, kF16Queries = kF16Warps * 16, kF16Keys = 64, kF16DimMax = 128;

template <int kDim>
struct F16Tile {
  uint4 keys[kDim / 32][kF16Keys / 8][kWarp];     // eight channels of a key
  uint4 values[kF16Keys / 16][kDim / 16][kWarp];  // four keys of two channels
};
template <int kDim>
constexpr size_t kF16SharedBytes = 2 * sizeof(F16Tile<kDim>);

// The rows of a tile, f32 or bf16: a multiple of 4 values apart, from an address that is a multiple of 4 values.
template <class T>
struct F16Rows {
  const T *keys, *values;
  int64_t key_stride, value_stride;
  int first, last;  // rows [first, last) of kF16Keys exist
};

// Four values as they are read.
template <class T>
struct Quad;
template <>
struct Quad<float> {
  float4 raw;
  __device__ float4 values() const { return raw; }
};
template <>
struct Quad<bf16> {
  uint2 raw;
  __device__ float4 values() const {
    return {bits_to_f32(raw.x << 16), bits_to_f32(raw.x & 0xffff0000u), bits_to_f32(raw.y << 16),
            bits_to_f32(raw.y & 0xffff0000u)};
  }
};
// Zeros if there is no row, and beyond its end.
template <class T>
__device__ Quad<T> read4(const T* row, int d, int dim) {
  using Raw = decltype(Quad<T>::raw);
  return {row && d < dim ? __ldg(reinterpret_cast<const Raw*>(row + d)) : Raw{}};
}
__device__ inline uint4 round_to_f16x8(const float4& low, const float4& high) {
  return {round_to_f16x2(low.x, low.y), round_to_f16x2(low.z, low.w), round_to_f16x2(high.x, high.y),
          round_to_f16x2(high.z, high.w)};
}

// The part of a tile that a thread brings, on its way: first keys, then values.
template <int kDim, class T>
struct F16CarriedKeys {
  static constexpr int kTurns = kDim / 32 * kF16Keys / 8 / kF16Warps;
  Quad<T> quads[kTurns][2];

  __device__ void read(const F16Rows<T>& rows, int dim) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int unit = warp + i * kF16Warps, tile = unit % (kF16Keys / 8),
                d = unit / (kF16Keys / 8) * 32 + q * 8;
      const int p = tile / 2 * 16 + g / 2 * 4 + tile % 2 * 2 + g % 2;
      const T* key = p >= rows.first && p < rows.last ? rows.keys + p * rows.key_stride : nullptr;
      quads[i][0] = read4(key, d, dim), quads[i][1] = read4(key, d + 4, dim);
    }
  }
  __device__ void write(F16Tile<kDim>& tile) const {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int unit = warp + i * kF16Warps;
      tile.keys[unit / (kF16Keys / 8)][unit % (kF16Keys / 8)][lane] =
          round_to_f16x8(quads[i][0].values(), quads[i][1].values());
    }
  }
};
template <int kDim, class T>
struct F16CarriedValues {
  static constexpr int kUnits = kF16Keys / 16 * kDim / 32, kTurns = (kUnits + kF16Warps - 1) / kF16Warps;
  Quad<T> quads[kTurns][4];

  __device__ void read(const F16Rows<T>& rows, int dim) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int unit = warp + i * kF16Warps, d = unit / (kF16Keys / 16) * 32 + g * 4;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int p = unit % (kF16Keys / 16) * 16 + q * 4 + n;
        const bool exists = unit < kUnits && p >= rows.first && p < rows.last;
        quads[i][n] = read4<T>(exists ? rows.values + p * rows.value_stride : nullptr, d, dim);
      }
    }
  }
  __device__ void write(F16Tile<kDim>& tile) const {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int unit = warp + i * kF16Warps;
      if (unit >= kUnits) break;
      const float4 v[4] = {quads[i][0].values(), quads[i][1].values(), quads[i][2].values(),
                           quads[i][3].values()};
      uint4* to = &tile.values[unit % (kF16Keys / 16)][unit / (kF16Keys / 16) * 2][lane];
      to[0] = {round_to_f16x2(v[0].x, v[1].x), round_to_f16x2(v[2].x, v[3].x), round_to_f16x2(v[0].y, v[1].y),
               round_to_f16x2(v[2].y, v[3].y)};
      to[kWarp] = {round_to_f16x2(v[0].z, v[1].z), round_to_f16x2(v[2].z, v[3].z),
                   round_to_f16x2(v[0].w, v[1].w), round_to_f16x2(v[2].w, v[3].w)};
    }
  }
};

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// What query i sees: positions [from, until).
struct F16Sight {
  int from, until;
};

// Source has: Value, float or bf16; dim, at most kDim and a multiple of 4; scale; begin, a multiple of kF16Keys, and end, of all positions;
// rows(begin): those of a tile; query(i): a row, null if there is none; sight(i); sink(i): a logit without a value, -inf
// if there is none; out(i): where the output goes. All threads of a block of kF16Warps warps call it. A query that sees
// nothing gives zero. `tiles` are two in shared memory.
template <int kDim, class Source>
__device__ void attend_f16(const Source& source, F16Tile<kDim>* tiles) {
  constexpr float kLog2E = 1.4426950408889634f;  // weights are powers of two
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, q = lane % 4;
  const int first = warp * 16 + lane / 4;  // of two queries of a lane; the other is 8 behind it
  uint32_t query[kDim / 16][4];
  F16Sight sight[2];
  float largest[2], total[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = first + 8 * half;
    const float* row = source.query(i);
    sight[half] = row ? source.sight(i) : F16Sight{0, 0};
    largest[half] = row ? source.sink(i) * kLog2E : -INFINITY;
    total[half] = q == 0 && largest[half] > -INFINITY ? 1 : 0;
    const float scale = source.scale * kLog2E;
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      float4 low = read4(row, 32 * j + 8 * q, source.dim).values(),
             high = read4(row, 32 * j + 8 * q + 4, source.dim).values();
      low.x *= scale, low.y *= scale, low.z *= scale, low.w *= scale;
      high.x *= scale, high.y *= scale, high.z *= scale, high.w *= scale;
      const uint4 pairs = round_to_f16x8(low, high);
      query[2 * j][half] = pairs.x, query[2 * j][2 + half] = pairs.y;
      query[2 * j + 1][half] = pairs.z, query[2 * j + 1][2 + half] = pairs.w;
    }
  }

  float sums[kDim / 8][4] = {};
  F16CarriedKeys<kDim, typename Source::Value> next_keys;
  F16CarriedValues<kDim, typename Source::Value> next_values;
  if (source.begin < source.end) {
    next_keys.read(source.rows(source.begin), source.dim),
        next_values.read(source.rows(source.begin), source.dim);
    next_keys.write(tiles[0]), next_values.write(tiles[0]);
  }
  __syncthreads();
  for (int begin = source.begin, stage = 0; begin < source.end; begin += kF16Keys, stage ^= 1) {
    const bool more = begin + kF16Keys < source.end;
    if (more) next_keys.read(source.rows(begin + kF16Keys), source.dim);

    float scores[kF16Keys / 8][4] = {};
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j)
#pragma unroll
      for (int n = 0; n < kF16Keys / 8; ++n) {
        const uint4 key = tiles[stage].keys[j][n][lane];
        mma_f16(scores[n], query[2 * j], key.x, key.y);
        mma_f16(scores[n], query[2 * j + 1], key.z, key.w);
      }
    if (more) {
      next_keys.write(tiles[stage ^ 1]);
      next_values.read(source.rows(begin + kF16Keys), source.dim);
    }

    uint32_t weights[kF16Keys / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (begin < sight[half].from || begin + kF16Keys > sight[half].until)
#pragma unroll
        for (int n = 0; n < kF16Keys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int p = begin + n / 2 * 16 + q * 4 + n % 2 * 2 + e;
            if (p < sight[half].from || p >= sight[half].until) scores[n][2 * half + e] = -INFINITY;
          }
      float most = largest[half];
#pragma unroll
      for (int n = 0; n < kF16Keys / 8; ++n)
        most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      most = quad_max(most);
      const float base = most == -INFINITY ? 0 : most;  // nothing seen so far
      const float factor = power_of_two(largest[half] - base);
      largest[half] = most;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kF16Keys / 8; ++n) {
        const float low = power_of_two(scores[n][2 * half] - base),
                    high = power_of_two(scores[n][2 * half + 1] - base);
        sum += low + high;
        weights[n / 2][n % 2 * 2 + half] = round_to_f16x2(low, high);
      }
      total[half] = total[half] * factor + sum;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) sums[n][2 * half] *= factor, sums[n][2 * half + 1] *= factor;
    }
#pragma unroll
    for (int step = 0; step < kF16Keys / 16; ++step)
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        const uint4 value = tiles[stage].values[step][n][lane];
        mma_f16(sums[2 * n], weights[step], value.x, value.y);
        mma_f16(sums[2 * n + 1], weights[step], value.z, value.w);
      }
    if (more) next_values.write(tiles[stage ^ 1]);
    __syncthreads();
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float all = quad_sum(total[half]), inverse = all == 0 ? 0 : 1 / all;
    if (!source.query(first + 8 * half)) continue;
    float* o = source.out(first + 8 * half);
#pragma unroll
    for (int b = 0; b < kDim / 32; ++b)
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int d = 32 * b + 8 * q + 4 * column, i = 2 * half + column;
        if (d < source.dim)
          *reinterpret_cast<float4*>(o + d) = {sums[4 * b][i] * inverse, sums[4 * b + 1][i] * inverse,
                                               sums[4 * b + 2][i] * inverse, sums[4 * b + 3][i] * inverse};
      }
  }
}

// The kernel for dim, of those for up to 64, 96 and 128 channels.
template <class Kernel>
struct F16Launch {
  Kernel kernel;
  size_t shared;
};
template <class Kernel>
F16Launch<Kernel> f16_launch_for(int dim, Kernel up_to_64, Kernel up_to_96, Kernel up_to_128) {
  if (dim <= 64) return {up_to_64, kF16SharedBytes<64>};
  if (dim <= 96) return {up_to_96, kF16SharedBytes<96>};
  return {up_to_128, kF16SharedBytes<128>};
}

}  // namespace dsa
