// kernels/vision_attention/vision_attention.cu: one block for 8 queries of a head in f32, or for 128 on the tensor cores;
// the blocks of a head go round the queries of a picture.
#include "kernels/common/attention.cuh"
#include "kernels/vision_attention/vision_attention.h"

namespace dsa {
namespace {

struct PictureSource {
  static constexpr bool kValuesApart = true;
  const VisionAttentionArgs& a;
  int64_t t, k_begin;
  int h, queries, count, k_dim, v_dim;
  float scale;

  __device__ float query(int i, int d) const {
    return a.q[(t + i) * a.q_token_stride + h * a.q_head_stride + d];
  }
  __device__ const float* key(int p) const {
    return a.k + (k_begin + p) * a.kv_token_stride + h * a.kv_head_stride;
  }
  __device__ const float* value(int p) const {
    return a.v + (k_begin + p) * a.kv_token_stride + h * a.kv_head_stride;
  }
  __device__ float sink(int) const { return -INFINITY; }
  __device__ void store(int i, int d, float y) const {
    a.o[(t + i) * a.o_token_stride + h * a.o_head_stride + d] = y;
  }
};

constexpr int kBlocks = 256;  // of one head and picture

// Grid (kBlocks, heads, num_runs).
template <int kOut>
__global__ void __launch_bounds__(kAttendThreads)
    vision_attention_kernel(const __grid_constant__ VisionAttentionArgs a) {
  float* shared = dynamic_shared<float>();
  begin_kernel();
  const VisionAttentionRun run = a.runs[blockIdx.z];
  for (int t = blockIdx.x * kAttendQueries; t < run.queries; t += kBlocks * kAttendQueries) {
    attend<kOut>(PictureSource{a, run.q_begin + t, run.k_begin, int(blockIdx.y),
                               min(kAttendQueries, run.queries - t), run.keys, a.dim, a.dim, a.scale},
                 shared);
    __syncthreads();
  }
}

// The fast route: a warp owns 16 queries, and the keys come in tiles of 64.
//
// Fragments. Which channels a lane multiplies, which keys are the columns of scores and which channels those of outputs is
// free as long as both factors agree, so that every thread reads whole float4 and writes whole uint4:
//   scores   lane 4 g + q multiplies channels 32 j + 8 q .. + 7 in steps 2 j and 2 j + 1 of 16
//   keys     column g of tile 2 i + e is key 16 i + 4 (g / 2) + 2 e + g % 2
//   outputs  column g of tile 4 b + n is channel 32 b + 4 g + n
constexpr int kWarpQueries = 16, kWarps = 8, kQueries = kWarps * kWarpQueries, kKeys = 64;

template <int kDim>
struct Tile {
  uint4 keys[kDim / 32][kKeys / 8][kWarp];     // one float8 of a key
  uint4 values[kKeys / 16][kDim / 16][kWarp];  // four keys of two channels
};

__device__ float4 read4(const float* row, int d, int dim) {
  return row && d < dim ? __ldg(reinterpret_cast<const float4*>(row + d)) : float4{0, 0, 0, 0};
}
__device__ uint4 round8(const float4& low, const float4& high) {
  return {round_to_f16x2(low.x, low.y), round_to_f16x2(low.z, low.w), round_to_f16x2(high.x, high.y),
          round_to_f16x2(high.z, high.w)};
}

// The part of a tile that a thread brings, on its way.
template <int kDim>
struct Carried {
  static constexpr int kOfKeys = kDim / 32 * kKeys / 8 / kWarps;
  static_assert(kOfKeys * kWarps == kDim / 32 * kKeys / 8);
  static constexpr int kValueUnits = kKeys / 16 * kDim / 32,
                       kValueTurns = (kValueUnits + kWarps - 1) / kWarps;
  float4 keys[kOfKeys][2], values[kValueTurns][4];

  __device__ void read(const VisionAttentionArgs& a, const VisionAttentionRun& run, int h, int begin) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
    const auto row = [&](const float* of, int p) {
      return p < run.keys ? of + (run.k_begin + p) * a.kv_token_stride + h * a.kv_head_stride : nullptr;
    };
#pragma unroll
    for (int i = 0; i < kOfKeys; ++i) {
      const int unit = warp + i * kWarps, tile = unit % (kKeys / 8), d = unit / (kKeys / 8) * 32 + q * 8;
      const float* key = row(a.k, begin + tile / 2 * 16 + g / 2 * 4 + tile % 2 * 2 + g % 2);
      keys[i][0] = read4(key, d, a.dim), keys[i][1] = read4(key, d + 4, a.dim);
    }
#pragma unroll
    for (int i = 0; i < kValueTurns; ++i) {
      const int unit = warp + i * kWarps, step = unit % (kKeys / 16), d = unit / (kKeys / 16) * 32 + g * 4;
#pragma unroll
      for (int n = 0; n < 4; ++n)
        values[i][n] = unit < kValueUnits ? read4(row(a.v, begin + step * 16 + q * 4 + n), d, a.dim)
                                          : float4{0, 0, 0, 0};
    }
  }
  __device__ void write(Tile<kDim>& tile) const {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kOfKeys; ++i) {
      const int unit = warp + i * kWarps;
      tile.keys[unit / (kKeys / 8)][unit % (kKeys / 8)][lane] = round8(keys[i][0], keys[i][1]);
    }
#pragma unroll
    for (int i = 0; i < kValueTurns; ++i) {
      const int unit = warp + i * kWarps;
      if (unit >= kValueUnits) break;
      const float4(&v)[4] = values[i];
      uint4* to = &tile.values[unit % (kKeys / 16)][unit / (kKeys / 16) * 2][lane];
      to[0] = {round_to_f16x2(v[0].x, v[1].x), round_to_f16x2(v[2].x, v[3].x), round_to_f16x2(v[0].y, v[1].y),
               round_to_f16x2(v[2].y, v[3].y)};
      to[kWarp] = {round_to_f16x2(v[0].z, v[1].z), round_to_f16x2(v[2].z, v[3].z),
                   round_to_f16x2(v[0].w, v[1].w), round_to_f16x2(v[2].w, v[3].w)};
    }
  }
};

__device__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

constexpr int kFastBlocks = 64;  // of one head and picture

// Grid (kFastBlocks, heads, num_runs). Shared: two tiles of keys and values, 64 KiB at 128 channels.
// Reads keys and values once per kQueries queries.
template <int kDim>
__global__ void __launch_bounds__(kWarps* kWarp)
    vision_attention_fast_kernel(const __grid_constant__ VisionAttentionArgs a) {
  Tile<kDim>* tiles = dynamic_shared<Tile<kDim>>();
  begin_kernel();
  const VisionAttentionRun run = a.runs[blockIdx.z];
  const int h = blockIdx.y, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4,
            q = lane % 4;
  const float scale = a.scale * 1.4426950408889634f;  // powers of two instead of e

  for (int block = blockIdx.x * kQueries; block < run.queries; block += kFastBlocks * kQueries) {
    const int first = block + warp * kWarpQueries + g;  // and 8 behind it
    uint32_t query[kDim / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = first + 8 * half;
      const float* row =
          t < run.queries ? a.q + (run.q_begin + t) * a.q_token_stride + h * a.q_head_stride : nullptr;
#pragma unroll
      for (int j = 0; j < kDim / 32; ++j) {
        float4 low = read4(row, 32 * j + 8 * q, a.dim), high = read4(row, 32 * j + 8 * q + 4, a.dim);
        for (float4* x : {&low, &high}) x->x *= scale, x->y *= scale, x->z *= scale, x->w *= scale;
        const uint4 pairs = round8(low, high);
        query[2 * j][half] = pairs.x, query[2 * j][2 + half] = pairs.y;
        query[2 * j + 1][half] = pairs.z, query[2 * j + 1][2 + half] = pairs.w;
      }
    }

    Carried<kDim> next;
    next.read(a, run, h, 0);
    next.write(tiles[0]);
    __syncthreads();
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[kDim / 8][4] = {};
    for (int begin = 0, stage = 0; begin < run.keys; begin += kKeys, stage ^= 1) {
      const bool more = begin + kKeys < run.keys;
      if (more) next.read(a, run, h, begin + kKeys);

      float scores[kKeys / 8][4] = {};
#pragma unroll
      for (int j = 0; j < kDim / 32; ++j)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const uint4 key = tiles[stage].keys[j][n][lane];
          mma_f16(scores[n], query[2 * j], key.x, key.y);
          mma_f16(scores[n], query[2 * j + 1], key.z, key.w);
        }
      if (!more)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (begin + n / 2 * 16 + q * 4 + n % 2 * 2 + i % 2 >= run.keys) scores[n][i] = -INFINITY;

      uint32_t weights[kKeys / 16][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
          most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        most = quad_max(most);
        const float factor = power_of_two(largest[half] - most);
        largest[half] = most;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          const float low = power_of_two(scores[n][2 * half] - most),
                      high = power_of_two(scores[n][2 * half + 1] - most);
          sum += low + high;
          weights[n / 2][n % 2 * 2 + half] = round_to_f16x2(low, high);
        }
        total[half] = total[half] * factor + sum;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) sums[n][2 * half] *= factor, sums[n][2 * half + 1] *= factor;
      }
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step)
#pragma unroll
        for (int n = 0; n < kDim / 16; ++n) {
          const uint4 value = tiles[stage].values[step][n][lane];
          mma_f16(sums[2 * n], weights[step], value.x, value.y);
          mma_f16(sums[2 * n + 1], weights[step], value.z, value.w);
        }
      if (more) next.write(tiles[stage ^ 1]);
      __syncthreads();
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = 1 / quad_sum(total[half]);
      const int t = first + 8 * half;
      if (t >= run.queries) continue;
      float* o = a.o + (run.q_begin + t) * a.o_token_stride + h * a.o_head_stride;
#pragma unroll
      for (int b = 0; b < kDim / 32; ++b)
#pragma unroll
        for (int column = 0; column < 2; ++column) {
          const int d = 32 * b + 8 * q + 4 * column, i = 2 * half + column;
          if (d < a.dim)
            *reinterpret_cast<float4*>(o + d) = {sums[4 * b][i] * inverse, sums[4 * b + 1][i] * inverse,
                                                 sums[4 * b + 2][i] * inverse, sums[4 * b + 3][i] * inverse};
        }
    }
  }
}

template <int kDim>
void fast(const VisionAttentionArgs& a, Queue& queue) {
  launch(queue, dim3(kFastBlocks, unsigned(a.heads), unsigned(a.num_runs)), kWarps * kWarp,
         2 * sizeof(Tile<kDim>), vision_attention_fast_kernel<kDim>, a);
}

bool takes_fast(const VisionAttentionArgs& a) {
  const int64_t strides = a.q_token_stride | a.q_head_stride | a.kv_token_stride | a.kv_head_stride |
                          a.o_token_stride | a.o_head_stride | a.dim;
  const uint64_t pointers = uint64_t(a.q) | uint64_t(a.k) | uint64_t(a.v) | uint64_t(a.o);
  return a.route == Route::fast && a.dim <= 128 && strides % 4 == 0 && pointers % 16 == 0;
}

}  // namespace

void cuda::vision_attention(const VisionAttentionArgs& a, Queue& queue) {
  if (takes_fast(a))
    return a.dim <= 64 ? fast<64>(a, queue) : a.dim <= 96 ? fast<96>(a, queue) : fast<128>(a, queue);
  const auto kernel = attend_kernel_for(a.dim, vision_attention_kernel<2>, vision_attention_kernel<8>,
                                        vision_attention_kernel<8>, vision_attention_kernel<8>);
  launch(queue, dim3(kBlocks, unsigned(a.heads), unsigned(a.num_runs)), kAttendThreads,
         attend_shared_bytes(a.dim, a.dim, true), kernel, a);
}

}  // namespace dsa
