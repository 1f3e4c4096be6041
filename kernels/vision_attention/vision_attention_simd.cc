// kernels/vision_attention/vision_attention_simd.cc: a tile of queries of one head meets the keys of its picture, a
// block after the other, with a running maximum and sum for each query.
//
// Both products have one form: kRows rows of numbers, each spread over a vector, times rows of vectors. For the
// scores the keys of a block are turned, so that a vector holds one channel of many keys. A block of keys and values
// (64 KiB at 128 channels) stays in L2 while the queries of the tile pass over it.
#include <cmath>
#include <cstring>

#include "kernels/common/simd.h"
#include "kernels/vision_attention/vision_attention.h"

namespace dsa {
namespace DSA_ISA {
namespace {

constexpr int kRows =
    6;  // queries whose sums are in registers together, and vectors of each: 24 of 32, or 12 of 16
constexpr int kVectors = kLanes == 16 || kLanes == 1 ? 4 : 2;
constexpr int kPanel = kVectors * kLanes;  // keys of a panel of turned keys
constexpr int kKeys = 64;                  // of a block: whole panels
constexpr int kQueries = 96;               // of a tile: whole groups of kRows
constexpr int kWidth = kVisionHeadDimMax;

// Queries [begin, begin + count) of a run, and one head.
struct Tile {
  VisionAttentionRun run;
  int head, begin, count;
};

// What a thread has on its stack: 224 KiB at most, touched as far as dim goes.
struct Scratch {
  alignas(64) float keys[kKeys * kWidth];     // [panel][dim][kPanel]
  alignas(64) float values[kKeys * kWidth];   // [key][width]
  alignas(64) float sums[kQueries * kWidth];  // [query][width]
  float largest[kQueries], total[kQueries];
};

int whole_vectors(int dim) { return (dim + kLanes - 1) / kLanes * kLanes; }

// sums[r][n] += a[r][i] * (row i of b)[n], over i in [0, depth).
template <int kN>
inline void outer(const float* const* a, const float* b, int64_t b_stride, int depth,
                  Vec (&sums)[kRows][kN]) {
  for (int i = 0; i < depth; ++i, b += b_stride) {
    Vec row[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) row[n] = load(b + n * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set(a[r][i]);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sums[r][n] = fma(x, row[n], sums[r][n]);
    }
  }
}

// Channels [d, d + kLanes) of four keys, to columns [p, p + 4) of the turned keys.
inline void turn_four(const float* const* rows, int d, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) to[d * kPanel + i] = rows[i][d];
#else
  Vec v[4] = {load(rows[0] + d), load(rows[1] + d), load(rows[2] + d), load(rows[3] + d)};
  transpose_blocks(v[0], v[1], v[2], v[3]);
  HWY_ALIGN float turned[4][kLanes];
  for (int j = 0; j < 4; ++j) store(v[j], turned[j]);
  for (int i = 0; i < kLanes / 4; ++i)
    for (int j = 0; j < 4; ++j) memcpy(to + (d + 4 * i + j) * kPanel, turned[j] + 4 * i, 4 * sizeof(float));
#endif
}

// Keys [p, p + count) of the picture. Where a block is not full its last key stands in for the rest.
void turn_keys(const VisionAttentionArgs& a, const Tile& tile, int p, int count, Scratch& scratch) {
  static_assert(kKeys % kPanel == 0 && kPanel % 4 == 0);
  const float* first = a.k + (tile.run.k_begin + p) * a.kv_stride + tile.head * a.dim;
  for (int key = 0; key < kKeys; key += 4) {
    const float* rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = first + (key + i < count ? key + i : count - 1) * a.kv_stride;
    float* to = scratch.keys + key / kPanel * a.dim * kPanel + key % kPanel;
    int d = 0;
    for (; d + kLanes <= a.dim; d += kLanes) turn_four(rows, d, to);
    for (; d < a.dim; ++d)
      for (int i = 0; i < 4; ++i) to[d * kPanel + i] = rows[i][d];
  }
}

void copy_values(const VisionAttentionArgs& a, const Tile& tile, int p, int count, Scratch& scratch) {
  const float* first = a.v + (tile.run.k_begin + p) * a.kv_stride + tile.head * a.dim;
  const int width = whole_vectors(a.dim);
  for (int key = 0; key < count; ++key)
    for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
      store(load(first + key * a.kv_stride + d, n), scratch.values + key * width + d);
    });
}

// Scores become weights relative to the new maximum; returns the factor for what was summed before.
float weigh(float scale, int count, float* scores, float& largest, float& total) {
  Vec highest = set(largest);
  for (int s = 0; s < kKeys; s += kLanes) {
    const Vec score = mul(load(scores + s), set(scale));
    store(score, scores + s);
  }
  for (int s = count; s < kKeys; ++s) scores[s] = -INFINITY;
  for (int s = 0; s < kKeys; s += kLanes) highest = hn::Max(highest, load(scores + s));
  const float previous = largest;
  largest = max(highest);
  const float base = largest == -INFINITY ? 0 : largest;  // -inf - -inf would be NaN

  Vec sums = zero();
  for (int s = 0; s < kKeys; s += kLanes) {
    const Vec weight = exp(sub(load(scores + s), set(base)));
    store(weight, scores + s);
    sums = add(sums, weight);
  }
  const float factor = std::exp(previous - base);
  total = total * factor + sum(sums);
  return factor;
}

// sums = factor * sums + weights * values, kN vectors of columns from d on.
template <int kN>
inline void accumulate(const float* const* weights, const float* factors, int count, bool first, int d,
                       int width, float* sums, const float* values) {
  Vec o[kRows][kN];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n)
      o[r][n] = first ? zero() : mul(set(factors[r]), load(sums + r * width + d + n * kLanes));
  outer<kN>(weights, values + d, width, count, o);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) store(o[r][n], sums + r * width + d + n * kLanes);
}

// kRows queries of the tile from `query` on, over one block of `count` keys. Queries past the end repeat the last.
void attend(const VisionAttentionArgs& a, const Tile& tile, int query, int count, bool first,
            Scratch& scratch) {
  const float* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int t = query + r < tile.count ? query + r : tile.count - 1;
    q[r] = a.q + (tile.run.q_begin + tile.begin + t) * a.q_stride + tile.head * a.dim;
  }
  alignas(64) float scores[kRows][kKeys];
  for (int panel = 0; panel < kKeys; panel += kPanel) {
    Vec sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) sums[r][n] = zero();
    outer<kVectors>(q, scratch.keys + panel * a.dim, kPanel, a.dim, sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int n = 0; n < kVectors; ++n) store(sums[r][n], scores[r] + panel + n * kLanes);
  }

  float factors[kRows];
  const float* weights[kRows];
  for (int r = 0; r < kRows; ++r) {
    factors[r] = weigh(a.scale, count, scores[r], scratch.largest[query + r], scratch.total[query + r]);
    weights[r] = scores[r];
  }

  const int width = whole_vectors(a.dim);
  float* sums = scratch.sums + query * width;
  int d = 0;
  for (; d + kVectors * kLanes <= width; d += kVectors * kLanes)
    accumulate<kVectors>(weights, factors, count, first, d, width, sums, scratch.values);
  for (; d < width; d += kLanes)
    accumulate<1>(weights, factors, count, first, d, width, sums, scratch.values);
}

void attend(const VisionAttentionArgs& a, const Tile& tile) {
  Scratch scratch;
  for (int t = 0; t < kQueries; ++t) scratch.largest[t] = -INFINITY, scratch.total[t] = 0;
  for (int p = 0; p < tile.run.keys; p += kKeys) {
    const int count = tile.run.keys - p < kKeys ? tile.run.keys - p : kKeys;
    turn_keys(a, tile, p, count, scratch);
    copy_values(a, tile, p, count, scratch);
    for (int t = 0; t < tile.count; t += kRows) attend(a, tile, t, count, p == 0, scratch);
  }
  const int width = whole_vectors(a.dim);
  for (int t = 0; t < tile.count; ++t) {
    float* o = a.o + (tile.run.q_begin + tile.begin + t) * a.o_stride + tile.head * a.dim;
    const Vec total = set(scratch.total[t]);
    for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
      store(div(load(scratch.sums + t * width + d), total), o + d, n);
    });
  }
}

}  // namespace

void vision_attention(const VisionAttentionArgs& a, Queue& queue) {
  // Small tiles keep all threads busy with one small picture, large ones turn the keys less often.
  const auto tiles_of = [&](int queries) {
    int64_t tiles = 0;
    for (int i = 0; i < a.num_runs; ++i) tiles += (a.runs[i].queries + queries - 1) / queries;
    return tiles;
  };
  int queries = kQueries;
  while (queries > 2 * kRows && tiles_of(queries) * a.heads < 3 * queue.threads()) queries /= 2;

  // The tiles of a head come one after the other: they share its keys.
  const int64_t tiles = tiles_of(queries);
  queue.parallel_for(tiles * a.heads, [&](int64_t item) {
    int64_t tile = item % tiles;
    for (int i = 0; i < a.num_runs; ++i) {
      const int64_t here = (a.runs[i].queries + queries - 1) / queries;
      if (tile < here) {
        const int begin = int(tile) * queries, left = a.runs[i].queries - begin;
        return attend(a, {a.runs[i], int(item / tiles), begin, left < queries ? left : queries});
      }
      tile -= here;
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
