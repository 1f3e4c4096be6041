// kernels/sparse_attention/sparse_attention_simd.cc: all heads of a token share the rows of its positions,
// read in place, or decoded, a block of positions after the other, with a running maximum and sum for each head.
//
// A thread takes a group of heads of one token. Every head is summed in the same order in any group.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/sparse_attention/sparse_attention.h"

namespace dsa {
namespace DSA_ISA {
namespace {

constexpr int kPositions = 32;                         // of a block; 72 KiB of rows of 576
constexpr int kHeads = 4;                              // heads that are in registers together
constexpr int kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;  // and vectors of an output
constexpr int kMaxGroup = 16;                          // heads of a thread

// The rows of one block. Slots from `count` to the next multiple of 4 repeat the last row.
template <class T>
struct Block {
  const T* rows[kPositions];
  int count;

  static int positions(int) { return kPositions; }
  const T* keep(const CacheRow& row, int) { return static_cast<const T*>(row.values); }
};

// Rows of fp8, as f32.
struct DecodedBlock : Block<float> {
  static constexpr int kFloats = kPositions * 640;
  HWY_ALIGN float floats[kFloats];

  static int positions(int dim) { return dim * kPositions <= kFloats ? kPositions : kFloats / dim / 4 * 4; }
  const float* keep(const CacheRow& from, int dim) {
    const Fp8Row row = from.fp8();
    float* to = floats + count * dim;
    for (int d = 0; d < row.coded; d += kFp8Block) {
      const int end = row.coded < d + kFp8Block ? row.coded : d + kFp8Block;
      const float scale = row.scales()[d / kFp8Block];
      for_each_vector(d, end, [&](int64_t i, size_t n) {
        if (n == lanes()) return store(mul(load_e4m3(row.codes + i), set(scale)), to + i);
        for (size_t j = 0; j < n; ++j) to[i + int64_t(j)] = e4m3_to_f32(row.codes[i + int64_t(j)]) * scale;
      });
    }
    for_each_vector(row.coded, dim,
                    [&](int64_t i, size_t n) { store(load(row.others() + i - row.coded, n), to + i, n); });
    return to;
  }
};

// Finds the next rows of token t from `slot` on; returns where to go on.
template <class Rows>
int gather(const SparseAttentionArgs& a, int64_t t, int slot, Rows& block) {
  const int slots = a.selected ? a.top_k : a.visible[t], positions = Rows::positions(a.latents.dim);
  block.count = 0;
  for (; slot < slots && block.count < positions; ++slot) {
    const int32_t p = a.selected ? a.selected[t * a.top_k + slot] : slot;
    if (p < 0) continue;
    block.rows[block.count] = block.keep(a.latents.row(a.sequence_of[t], p), a.latents.dim);
    ++block.count;
  }
  for (int i = block.count; i % 4 != 0; ++i) block.rows[i] = block.rows[i - 1];
  return slot;
}

// What runs along with a head.
struct Running {
  float largest = -INFINITY, total = 0;
};

const float* q_latent(const SparseAttentionArgs& a, int64_t t, int h) {
  return a.q_latent + (t * a.heads + h) * a.latent_dim;
}
const float* q_rope(const SparseAttentionArgs& a, int64_t t, int h) {
  return a.q_rope + t * a.q_rope_token_stride + h * a.q_rope_head_stride;
}
float* output(const SparseAttentionArgs& a, int64_t t, int h) {
  return a.o + (t * a.heads + h) * a.latent_dim;
}

// Dot products of kR heads with the rows of a block.
template <int kR, class T>
void score(const SparseAttentionArgs& a, int64_t t, int h, const Block<T>& block,
           float (*scores)[kPositions]) {
  const float *latent[kR], *rope[kR];
  for (int r = 0; r < kR; ++r) latent[r] = q_latent(a, t, h + r), rope[r] = q_rope(a, t, h + r);
  for (int s = 0; s < block.count; s += 4) {
    Vec sums[kR][4];
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < 4; ++i) sums[r][i] = zero();
    const auto add = [&](const float* const* q, int64_t q_d, int64_t d, size_t n) {
      Vec x[kR];
      for (int r = 0; r < kR; ++r) x[r] = load(q[r] + q_d, n);
      for (int i = 0; i < 4; ++i) {
        const Vec row = load(block.rows[s + i] + d, n);
        for (int r = 0; r < kR; ++r) sums[r][i] = fma(x[r], row, sums[r][i]);
      }
    };
    for_each_vector(0, a.latent_dim, [&](int64_t d, size_t n) { add(latent, d, d, n); });
    for_each_vector(0, a.rope_dim, [&](int64_t d, size_t n) { add(rope, d, a.latent_dim + d, n); });
    for (int r = 0; r < kR; ++r) sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], scores[r] + s);
  }
}

// Scores become weights relative to the new maximum; returns the factor for what was summed before.
float weigh(float scale, int count, float* scores, Running& running) {
  for_each_vector(0, kPositions,
                  [&](int64_t s, size_t n) { store(mul(load(scores + s, n), set(scale)), scores + s, n); });
  for (int s = count; s < kPositions; ++s) scores[s] = -INFINITY;

  Vec largest = set(running.largest);
  for_each_vector(0, kPositions, [&](int64_t s, size_t) { largest = hn::Max(largest, load(scores + s)); });
  const float previous = running.largest;
  running.largest = max(largest);
  const float base = running.largest == -INFINITY ? 0 : running.largest;  // -inf - -inf would be NaN

  Vec total = zero();
  for_each_vector(0, kPositions, [&](int64_t s, size_t) {
    const Vec weight = exp(sub(load(scores + s), set(base)));
    store(weight, scores + s);
    total = add(total, weight);
  });
  const float factor = std::exp(previous - base);
  running.total = running.total * factor + sum(total);
  return factor;
}

// o = factor * o + the weighted rows. The first block of a token does not read o.
template <int kR, class T>
void accumulate(const SparseAttentionArgs& a, int64_t t, int h, const Block<T>& block,
                const float (*weights)[kPositions], const float* factors, bool first) {
  const auto columns = [&]<int kN>(int64_t d, size_t n) {
    Vec o[kR][kN];
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < kN; ++i)
        o[r][i] = first ? zero() : mul(set(factors[r]), load(output(a, t, h + r) + d + i * lanes(), n));
    for (int s = 0; s < block.count; ++s) {
      Vec row[kN];
      for (int i = 0; i < kN; ++i) row[i] = load(block.rows[s] + d + i * lanes(), n);
      for (int r = 0; r < kR; ++r) {
        const Vec weight = set(weights[r][s]);
        for (int i = 0; i < kN; ++i) o[r][i] = fma(weight, row[i], o[r][i]);
      }
    }
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < kN; ++i) store(o[r][i], output(a, t, h + r) + d + i * lanes(), n);
  };
  const int64_t step = kVectors * int64_t(lanes());
  int64_t d = 0;
  for (; d + step <= a.latent_dim; d += step) columns.template operator()<kVectors>(d, lanes());
  for_each_vector(d, a.latent_dim, [&](int64_t e, size_t n) { columns.template operator()<1>(e, n); });
}

template <int kR, class T>
void attend(const SparseAttentionArgs& a, int64_t t, int h, const Block<T>& block, bool first,
            Running* running) {
  HWY_ALIGN float scores[kR][kPositions] = {};
  float factors[kR];
  score<kR>(a, t, h, block, scores);
  for (int r = 0; r < kR; ++r) factors[r] = weigh(a.scale, block.count, scores[r], running[r]);
  accumulate<kR>(a, t, h, block, scores, factors, first);
}

template <class Rows>
void run(const SparseAttentionArgs& a, Queue& queue) {
  // Small groups keep all threads busy with one token, large ones read the rows less often.
  int group = kMaxGroup;
  while (group > kHeads && int64_t(a.tokens) * ((a.heads + group - 1) / group) < 3 * queue.threads())
    group /= 2;
  const int64_t groups = (a.heads + group - 1) / group;

  queue.parallel_for(a.tokens * groups, [&](int64_t item) {
    const int64_t t = item / groups;
    const int begin = int(item % groups) * group, end = begin + group < a.heads ? begin + group : a.heads;
    Running running[kMaxGroup];
    Rows block;
    int slot = gather(a, t, 0, block);
    const bool empty = block.count == 0;
    for (bool first = true; block.count > 0; first = false, slot = gather(a, t, slot, block)) {
      int h = begin;
      for (; h + kHeads <= end; h += kHeads) attend<kHeads>(a, t, h, block, first, running + h - begin);
      switch (end - h) {
        case 3: attend<3>(a, t, h, block, first, running + h - begin); break;
        case 2: attend<2>(a, t, h, block, first, running + h - begin); break;
        case 1: attend<1>(a, t, h, block, first, running + h - begin); break;
      }
    }
    for (int h = begin; h < end; ++h) {
      const Vec total = set(running[h - begin].total);
      for_each_vector(0, a.latent_dim, [&](int64_t d, size_t n) {
        float* o = output(a, t, h) + d;
        store(empty ? zero() : div(load(o, n), total), o, n);
      });
    }
  });
}

}  // namespace

void sparse_attention(const SparseAttentionArgs& a, Queue& queue) {
  switch (a.latents.format) {
    case CacheFormat::f32: return run<Block<float>>(a, queue);
    case CacheFormat::bf16: return run<Block<bf16>>(a, queue);
    case CacheFormat::fp8:
      return DecodedBlock::positions(a.latents.dim) > 0 ? run<DecodedBlock>(a, queue)
                                                        : ref::sparse_attention(a, queue);
  }
}

}  // namespace DSA_ISA
}  // namespace dsa
