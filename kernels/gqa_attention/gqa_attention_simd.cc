// kernels/gqa_attention/gqa_attention_simd.cc: the query heads of a group share the rows of its keys and values, read
// in place, a block of positions after the other, with a running maximum and sum for each head.
//
// A thread takes one group of one token. Every head is summed in the same order in any group.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/gqa_attention/gqa_attention.h"

namespace dsa {
namespace DSA_ISA {
namespace {

constexpr int kPositions = 32;                         // of a block
constexpr int kHeads = 4;                              // heads that are in registers together
constexpr int kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;  // and vectors of an output

// Keys and values of one block. Slots from `count` to the next multiple of 4 repeat the last one.
template <class T>
struct Block {
  const T *k[kPositions], *v[kPositions];
  int count;
};

template <class T>
void gather(const GqaAttentionArgs& a, int64_t t, int64_t column, int first, Block<T>& block) {
  const int left = a.visible[t] - first;
  block.count = left < kPositions ? left : kPositions;
  for (int i = 0; i < block.count; ++i) {
    block.k[i] = a.k.values<T>(a.sequence_of[t], first + i) + column;
    block.v[i] = a.v.values<T>(a.sequence_of[t], first + i) + column;
  }
  for (int i = block.count; i % 4 != 0; ++i) block.k[i] = block.k[i - 1];
}

// kR heads of one group on their way over the positions.
template <int kR>
struct Heads {
  const float* q[kR];
  float* o[kR];
  float largest[kR], total[kR];
  HWY_ALIGN float weights[kR][kPositions];
  float factors[kR];

  template <class T>
  void score(const Block<T>& block, int dim) {
    for (int s = 0; s < block.count; s += 4) {
      Vec sums[kR][4];
      for (int r = 0; r < kR; ++r)
        for (int i = 0; i < 4; ++i) sums[r][i] = zero();
      for_each_vector(0, dim, [&](int64_t d, size_t n) {
        Vec x[kR];
        for (int r = 0; r < kR; ++r) x[r] = load(q[r] + d, n);
        for (int i = 0; i < 4; ++i) {
          const Vec k = load(block.k[s + i] + d, n);
          for (int r = 0; r < kR; ++r) sums[r][i] = fma(x[r], k, sums[r][i]);
        }
      });
      for (int r = 0; r < kR; ++r) sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], weights[r] + s);
    }
  }

  // Scores become weights relative to the new maximum; what was summed before shrinks by a factor.
  void weigh(int count, float scale) {
    for (int r = 0; r < kR; ++r) {
      float* scores = weights[r];
      for_each_vector(0, kPositions, [&](int64_t s, size_t n) {
        store(mul(load(scores + s, n), set(scale)), scores + s, n);
      });
      for (int s = count; s < kPositions; ++s) scores[s] = -INFINITY;
      Vec most = set(largest[r]);
      for_each_vector(0, kPositions, [&](int64_t s, size_t n) { most = hn::Max(most, load(scores + s, n)); });
      const float previous = largest[r];
      largest[r] = max(most);
      const float base = largest[r] == -INFINITY ? 0 : largest[r];  // -inf - -inf would be NaN
      Vec sums = zero();
      for_each_vector(0, kPositions, [&](int64_t s, size_t n) {
        const Vec weight = exp(sub(load(scores + s, n), set(base)));
        store(weight, scores + s, n);
        sums = add(sums, weight);
      });
      factors[r] = std::exp(previous - base);
      total[r] = total[r] * factors[r] + sum(sums);
    }
  }

  // o = factor * o + the weighted values. The first block of a token does not read o.
  template <class T>
  void accumulate(const Block<T>& block, int dim, bool first) {
    const auto columns = [&]<int kN>(int64_t d, size_t n) {
      Vec sums[kR][kN];
      for (int r = 0; r < kR; ++r)
        for (int i = 0; i < kN; ++i)
          sums[r][i] = first ? zero() : mul(set(factors[r]), load(o[r] + d + i * lanes(), n));
      for (int s = 0; s < block.count; ++s) {
        Vec v[kN];
        for (int i = 0; i < kN; ++i) v[i] = load(block.v[s] + d + i * lanes(), n);
        for (int r = 0; r < kR; ++r)
          for (int i = 0; i < kN; ++i) sums[r][i] = fma(set(weights[r][s]), v[i], sums[r][i]);
      }
      for (int r = 0; r < kR; ++r)
        for (int i = 0; i < kN; ++i) store(sums[r][i], o[r] + d + i * lanes(), n);
    };
    const int64_t step = kVectors * int64_t(lanes());
    int64_t d = 0;
    for (; d + step <= dim; d += step) columns.template operator()<kVectors>(d, lanes());
    for_each_vector(d, dim, [&](int64_t e, size_t n) { columns.template operator()<1>(e, n); });
  }
};

template <int kR, class T>
void attend(const GqaAttentionArgs& a, int64_t t, int h) {
  Heads<kR> heads = {};
  for (int r = 0; r < kR; ++r) {
    heads.q[r] = a.q + (t * a.heads + h + r) * a.dim;
    heads.o[r] = a.o + (t * a.heads + h + r) * a.dim;
    heads.largest[r] = a.sinks ? a.sinks[h + r] : -INFINITY;
    heads.total[r] = a.sinks ? 1 : 0;  // exp(sink - sink)
  }
  const int64_t column = int64_t(h / a.group()) * a.dim;
  const int begin = a.first(t);
  Block<T> block;
  for (int p = begin; p < a.visible[t]; p += kPositions) {
    gather(a, t, column, p, block);
    heads.score(block, a.dim);
    heads.weigh(block.count, a.scale);
    heads.accumulate(block, a.dim, p == begin);
  }
  const bool empty = begin >= a.visible[t];
  for (int r = 0; r < kR; ++r) {
    const Vec total = set(heads.total[r]);
    for_each_vector(0, a.dim, [&](int64_t d, size_t n) {
      float* o = heads.o[r] + d;
      store(empty ? zero() : div(load(o, n), total), o, n);
    });
  }
}

template <class T>
void run(const GqaAttentionArgs& a, Queue& queue) {
  queue.parallel_for(int64_t(a.tokens) * a.kv_heads, [&](int64_t item) {
    const int64_t t = item / a.kv_heads;
    int h = int(item % a.kv_heads) * a.group();
    const int end = h + a.group();
    for (; h + kHeads <= end; h += kHeads) attend<kHeads, T>(a, t, h);
    switch (end - h) {
      case 3: attend<3, T>(a, t, h); break;
      case 2: attend<2, T>(a, t, h); break;
      case 1: attend<1, T>(a, t, h); break;
    }
  });
}

}  // namespace

void gqa_attention(const GqaAttentionArgs& a, Queue& queue) {
  a.k.format == CacheFormat::bf16 ? run<bf16>(a, queue) : run<float>(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
