// kernels/common/attention.cuh: up to 8 queries that share their keys and values, in one block, f32.
//
// Keys come in tiles of 32; each warp owns one query for the scores, each thread some outputs for the sums. The maximum
// so far is subtracted, and what was summed is scaled down when it grows. The order of the sums depends on the keys
// alone.
#pragma once

#include "base/status.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kAttendQueries = 8, kAttendTile = 32, kAttendThreads = kAttendQueries * kWarp;

// A row of keys in shared memory, in floats: whole float4, an odd number of them for most dims.
__host__ __device__ inline int attend_key_stride(int k_dim) { return (k_dim + 3) / 4 * 4 + 4; }
// `values_apart`: values are other rows than keys.
inline size_t attend_shared_bytes(int k_dim, int v_dim, bool values_apart) {
  const int stride = attend_key_stride(k_dim);
  return sizeof(float) * (size_t(kAttendQueries + kAttendTile) * stride +
                          (values_apart ? kAttendTile * v_dim : 0) + kAttendQueries * (kAttendTile + 1));
}

// Source has: queries, count (of keys), k_dim, v_dim, scale; query(i, d); key(p), value(p): rows; kValuesApart;
// sink(i): a logit without a value, -inf if there is none; store(i, d, y). v_dim is at most kOut * 32.
template <int kOut, class Source>
__device__ void attend(const Source& source, float* shared) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, stride = attend_key_stride(source.k_dim);
  float* q = shared;                       // [kAttendQueries, stride]
  float* k = q + kAttendQueries * stride;  // [kAttendTile, stride]
  float* v = k;                            // [kAttendTile, v_stride]
  int v_stride = stride;
  float* weights = k + kAttendTile * stride;  // [kAttendQueries, kAttendTile]
  if (Source::kValuesApart) {
    v = weights, v_stride = source.v_dim;
    weights = v + kAttendTile * v_stride;
  }
  float* factors = weights + kAttendQueries * kAttendTile;  // [kAttendQueries]

  for (int d = lane; d < stride; d += kWarp)
    q[warp * stride + d] = warp < source.queries && d < source.k_dim ? source.query(warp, d) : 0.f;
  float largest = source.count > 0 && warp < source.queries ? source.sink(warp) : -INFINITY;
  float total = largest > -INFINITY ? 1 : 0;  // e^(sink - sink)
  float sums[kOut] = {};

  const int outputs = source.queries * source.v_dim;
  for (int begin = 0; begin < source.count; begin += kAttendTile) {
    const int tile = min(kAttendTile, source.count - begin);
    __syncthreads();  // the tile before has been used
    for (int p = warp; p < kAttendTile; p += kAttendQueries) {
      const float *key = p < tile ? source.key(begin + p) : nullptr,
                  *value = p < tile ? source.value(begin + p) : nullptr;
      for (int d = lane; d < stride; d += kWarp) k[p * stride + d] = key && d < source.k_dim ? key[d] : 0.f;
      if (Source::kValuesApart)
        for (int d = lane; d < source.v_dim; d += kWarp) v[p * v_stride + d] = value ? value[d] : 0.f;
    }
    __syncthreads();

    float dot = 0;
    for (int d = 0; d < stride; d += 4) {
      const float4 a = *reinterpret_cast<const float4*>(q + warp * stride + d);
      const float4 b = *reinterpret_cast<const float4*>(k + lane * stride + d);
      dot += a.x * b.x, dot += a.y * b.y, dot += a.z * b.z, dot += a.w * b.w;
    }
    const float score = lane < tile ? source.scale * dot : -INFINITY;
    const float new_largest = fmaxf(largest, warp_max(score));
    const float factor = largest == new_largest ? 1 : expf(largest - new_largest);
    const float weight = lane < tile ? expf(score - new_largest) : 0.f;
    total = total * factor + warp_sum(weight);
    largest = new_largest;
    weights[warp * kAttendTile + lane] = weight;
    if (lane == 0) factors[warp] = factor;
    __syncthreads();

#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      const int at = threadIdx.x + i * kAttendThreads;
      if (at >= outputs) break;
      const int query = at / source.v_dim, d = at % source.v_dim;
      float sum = sums[i] * factors[query];
      for (int p = 0; p < tile; ++p) sum += weights[query * kAttendTile + p] * v[p * v_stride + d];
      sums[i] = sum;
    }
  }

  __syncthreads();
  if (lane == 0) factors[warp] = total > 0 || total != total ? 1 / total : 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOut; ++i) {
    const int at = threadIdx.x + i * kAttendThreads;
    if (at < outputs)
      source.store(at / source.v_dim, at % source.v_dim, sums[i] * factors[at / source.v_dim]);
  }
}

// The kernel for v_dim, of kernels for up to 64, 256, 512 and 1024 outputs a query.
template <class Kernel>
Kernel attend_kernel_for(int v_dim, Kernel up_to_64, Kernel up_to_256, Kernel up_to_512, Kernel up_to_1024) {
  DSA_ASSERT(v_dim <= 1024);
  return v_dim <= 64 ? up_to_64 : v_dim <= 256 ? up_to_256 : v_dim <= 512 ? up_to_512 : up_to_1024;
}

}  // namespace dsa
