// kernels/common/attention.cuh: up to 8 queries that share their keys and values, in one block, f32.
//
// Keys come in tiles of 32; each warp owns one query for the scores, each thread some outputs for the sums. The maximum
// so far is subtracted, and what was summed is scaled down when it grows. Keys are cut into splits by their number
// alone; each split starts afresh, and splits are merged in their order: whether one block takes them all, or each has
// a block of its own and a second kernel merges them, the bits are the same.
#pragma once

#include "base/status.h"
#include "kernels/common/cuda.cuh"
#include "kernels/common/paged.h"

namespace dsa {

constexpr int kAttendQueries = 8, kAttendTile = 32, kAttendThreads = kAttendQueries * kWarp;
constexpr int kSplitMin = 128, kSplitsMax = 64;  // keys of a split; splits

__host__ __device__ inline int split_size(int count) {
  const int size = (count + kSplitsMax - 1) / kSplitsMax;
  return size <= kSplitMin ? kSplitMin : (size + kAttendTile - 1) / kAttendTile * kAttendTile;
}
__host__ __device__ inline int splits_of(int count) {
  return (count + split_size(count) - 1) / split_size(count);
}

// What a query has seen: sums are of weights e^(score - largest) times values.
struct Softmax {
  float largest, total;
};
// Takes the factors by which the sums of both have to be multiplied, and merges the rest.
__device__ inline float2 merge(Softmax& all, const Softmax& part) {
  const float largest = fmaxf(all.largest, part.largest);
  const float2 factors = {all.largest == largest ? 1.f : expf(all.largest - largest),
                          part.largest == largest ? 1.f : expf(part.largest - largest)};
  all = {largest, __fmaf_rn(part.total, factors.y, all.total * factors.x)};
  return factors;
}
__device__ inline float merge_sum(float all, float part, float2 factors) {
  return __fmaf_rn(part, factors.y, all * factors.x);
}
__device__ inline float reciprocal(float total) { return total == 0 ? 0 : 1 / total; }

// A row of keys in shared memory, in floats: whole float4, an odd number of them for most dims.
__host__ __device__ inline int attend_key_stride(int k_dim) { return (k_dim + 3) / 4 * 4 + 4; }
// `values_apart`: values are other rows than keys.
inline size_t attend_shared_bytes(int k_dim, int v_dim, bool values_apart) {
  const int stride = attend_key_stride(k_dim);
  return sizeof(float) * (size_t(kAttendQueries + kAttendTile) * stride +
                          (values_apart ? kAttendTile * v_dim : 0) + kAttendQueries * (kAttendTile + 2));
}

// The first `count` values of a row, zeros behind them, `places` in all. One warp.
template <class T>
__device__ void copy_row(const T* row, int count, int places, float* shared) {
  for (int d = threadIdx.x % kWarp; d < places; d += kWarp) shared[d] = d < count ? to_f32(row[d]) : 0.f;
}
__device__ inline void copy_row(const CacheRow& row, int count, int places, float* shared) {
  switch (row.format) {
    case CacheFormat::f32: copy_row(static_cast<const float*>(row.values), count, places, shared); break;
    case CacheFormat::bf16: copy_row(static_cast<const bf16*>(row.values), count, places, shared); break;
    case CacheFormat::fp8:
      for (int d = threadIdx.x % kWarp; d < places; d += kWarp) shared[d] = d < count ? row.fp8()[d] : 0.f;
  }
}

// Source has: queries, count (of keys), k_dim, v_dim, scale; query(i, d); key(p), value(p): rows that copy_row
// takes; kValuesApart; sink(i): a logit without a value, -inf if there is none; store(i, d, y). v_dim is at most
// kOut * 32.
//
// partial null: all splits, and store() gets the result. Else: split `split` alone, and partial + i * partial_stride
// gets the sums of query i, then its Softmax.
template <int kOut, class Source>
__device__ void attend(const Source& source, float* shared, float* partial = nullptr,
                       int64_t partial_stride = 0, int split = 0) {
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
  auto* factors = reinterpret_cast<float2*>(weights + kAttendQueries * kAttendTile);  // [kAttendQueries]

  const int size = split_size(source.count), outputs = source.queries * source.v_dim;
  const int splits_begin = partial ? split : 0, splits_end = partial ? split + 1 : splits_of(source.count);
  for (int d = lane; d < stride; d += kWarp)
    q[warp * stride + d] = warp < source.queries && d < source.k_dim ? source.query(warp, d) : 0.f;
  Softmax all = {!partial && source.count > 0 && warp < source.queries ? source.sink(warp) : -INFINITY, 0};
  if (all.largest > -INFINITY) all.total = 1;  // e^(sink - sink)
  float all_sums[kOut] = {};

  for (int at_split = splits_begin; at_split < splits_end; ++at_split) {
    Softmax part = {-INFINITY, 0};
    float sums[kOut] = {};
    const int end = min((at_split + 1) * size, source.count);
    for (int begin = at_split * size; begin < end; begin += kAttendTile) {
      const int tile = min(kAttendTile, end - begin);
      __syncthreads();  // the tile before has been used
      for (int p = warp; p < kAttendTile; p += kAttendQueries) {
        const bool exists = p < tile;
        copy_row(exists ? source.key(begin + p) : decltype(source.key(0)){}, exists ? source.k_dim : 0,
                 stride, k + p * stride);
        if (Source::kValuesApart)
          copy_row(exists ? source.value(begin + p) : decltype(source.value(0)){}, exists ? source.v_dim : 0,
                   source.v_dim, v + p * v_stride);
      }
      __syncthreads();

      float dot = 0;
      for (int d = 0; d < stride; d += 4) {
        const float4 a = *reinterpret_cast<const float4*>(q + warp * stride + d);
        const float4 b = *reinterpret_cast<const float4*>(k + lane * stride + d);
        dot += a.x * b.x, dot += a.y * b.y, dot += a.z * b.z, dot += a.w * b.w;
      }
      const float score = lane < tile ? source.scale * dot : -INFINITY;
      const float largest = fmaxf(part.largest, warp_max(score));
      const float factor = part.largest == largest ? 1 : expf(part.largest - largest);
      const float weight = lane < tile ? expf(score - largest) : 0.f;
      part = {largest, part.total * factor + warp_sum(weight)};
      weights[warp * kAttendTile + lane] = weight;
      if (lane == 0) factors[warp].x = factor;
      __syncthreads();

#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        const int at = threadIdx.x + i * kAttendThreads;
        if (at >= outputs) break;
        const int query = at / source.v_dim, d = at % source.v_dim;
        float sum = sums[i] * factors[query].x;
        for (int p = 0; p < tile; ++p) sum += weights[query * kAttendTile + p] * v[p * v_stride + d];
        sums[i] = sum;
      }
    }

    if (partial) {
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        const int at = threadIdx.x + i * kAttendThreads;
        if (at < outputs) partial[at / source.v_dim * partial_stride + at % source.v_dim] = sums[i];
      }
      if (lane == 0 && warp < source.queries) {
        partial[warp * partial_stride + source.v_dim] = part.largest;
        partial[warp * partial_stride + source.v_dim + 1] = part.total;
      }
      return;
    }
    __syncthreads();
    const float2 merged = merge(all, part);
    if (lane == 0) factors[warp] = merged;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      const int at = threadIdx.x + i * kAttendThreads;
      if (at < outputs) all_sums[i] = merge_sum(all_sums[i], sums[i], factors[at / source.v_dim]);
    }
  }

  __syncthreads();
  if (lane == 0) factors[warp].x = reciprocal(all.total);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOut; ++i) {
    const int at = threadIdx.x + i * kAttendThreads;
    if (at < outputs)
      source.store(at / source.v_dim, at % source.v_dim, all_sums[i] * factors[at / source.v_dim].x);
  }
}

// Floats of the partial results of one query.
inline int64_t partial_floats(int v_dim) { return kSplitsMax * (int64_t(v_dim) + 2); }

// Merges the splits of query (t, h), of [tokens, heads] in `partials`, one block each. count(t): keys; sink(h);
// out(t, h): where the result goes.
template <class Count, class Sink, class Out>
void merge_splits(Queue& queue, const float* partials, int tokens, int heads, int v_dim, const Count& count,
                  const Sink& sink, const Out& out) {
  const int64_t stride = partial_floats(v_dim);
  each_block(queue, int64_t(tokens) * heads, threads_for(v_dim), [=] __device__(int64_t query) {
    const int64_t t = query / heads;
    const int h = int(query % heads), keys = count(t), splits = keys > 0 ? splits_of(keys) : 0;
    float* y = out(t, h);
    for (int d = threadIdx.x; d < v_dim; d += blockDim.x) {
      Softmax all = {keys > 0 ? sink(h) : -INFINITY, 0};
      if (all.largest > -INFINITY) all.total = 1;
      float sum = 0;
      for (int split = 0; split < splits; ++split) {
        const float* part = partials + query * stride + split * (int64_t(v_dim) + 2);
        const float2 factors = merge(all, Softmax{part[v_dim], part[v_dim + 1]});
        sum = merge_sum(sum, part[d], factors);
      }
      y[d] = sum * reciprocal(all.total);
    }
  });
}

// The kernel for v_dim, of kernels for up to 64, 256, 512 and 1024 outputs a query.
template <class Kernel>
Kernel attend_kernel_for(int v_dim, Kernel up_to_64, Kernel up_to_256, Kernel up_to_512, Kernel up_to_1024) {
  DSA_ASSERT(v_dim <= 1024);
  return v_dim <= 64 ? up_to_64 : v_dim <= 256 ? up_to_256 : v_dim <= 512 ? up_to_512 : up_to_1024;
}

// Splits get blocks of their own while the device has too few others.
constexpr int kSplitTokensMax = 32;

}  // namespace dsa
