// kernels/index_scores/index_scores_simd.cc: the keys of a page are turned to [dim, positions], so that the
// lanes of a vector are positions and no sum crosses lanes; tokens and heads pass over them while they stay
// in the cache. Where a page has few keys, or keeps them as bf16, they are laid together as f32 first.
//
// A thread takes kPageSize keys and a block of tokens.
#include <cmath>
#include <cstring>

#include "kernels/common/simd.h"
#include "kernels/index_scores/index_scores.h"

namespace dsa {
namespace DSA_ISA {
namespace {

constexpr int kMaxDim = 256;
constexpr int kHeads = 4;                              // heads that are in registers together
constexpr int kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;  // and vectors of positions
constexpr int64_t kTokens = 64;                        // tokens of a block

#if HWY_TARGET == HWY_SCALAR
void turn(const float* rows, int dim, float* keys) {
  for (int d = 0; d < dim; ++d)
    for (int p = 0; p < kPageSize; ++p) keys[d * kPageSize + p] = rows[size_t(p) * dim + d];
}
#else
// Four values from each of every fourth row, a block of lanes per row.
template <class D>
hn::Vec<D> load_blocks(D d, const float* p, size_t row) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    const auto low = load_blocks(half, p, row), high = load_blocks(half, p + hn::MaxLanes(half) * row, row);
    return hn::Combine(d, high, low);
  } else {
    return hn::LoadU(d, p);
  }
}
void turn(const float* rows, int dim, float* keys) {
  const size_t row = size_t(dim);
  for (int p = 0; p < kPageSize; p += int(lanes())) {
    const float* first = rows + p * row;
    int d = 0;
    for (; d + 4 <= dim; d += 4) {
      Vec v[4];
      for (int i = 0; i < 4; ++i) v[i] = load_blocks(F32(), first + i * row + d, row);
      transpose_blocks(v[0], v[1], v[2], v[3]);
      for (int i = 0; i < 4; ++i) store(v[i], keys + (d + i) * kPageSize + p);
    }
    for (; d < dim; ++d)
      for (int i = 0; i < int(lanes()); ++i) keys[d * kPageSize + p + i] = first[i * row + d];
  }
}
#endif

// Keys [p0, p0 + kPageSize) of a sequence, turned. What lies behind the first `count` is never looked at.
void turned_keys(const PagedRows& k, int sequence, int64_t p0, int count, float* keys) {
  if (k.page_rows == kPageSize && k.format == CacheFormat::f32)
    return turn(k.values<float>(sequence, p0), k.dim, keys);
  float rows[kMaxDim * kPageSize];
  for (int p = 0; p < count; ++p) {
    float* row = rows + p * k.dim;
    if (k.format == CacheFormat::f32) {
      memcpy(row, k.values<float>(sequence, p0 + p), size_t(k.dim) * sizeof(float));
      continue;
    }
    const bf16* values = k.values<bf16>(sequence, p0 + p);
    for_each_vector(0, k.dim, [&](int64_t d, size_t n) { store(load(values + d, n), row + d, n); });
  }
  memset(rows + count * k.dim, 0, size_t(kPageSize - count) * size_t(k.dim) * sizeof(float));
  turn(rows, k.dim, keys);
}

// Adds kR heads to the scores of kVectors vectors of positions.
template <int kR>
void add_heads(const float* q, const float* weights, int dim, const float* keys, Vec* scores) {
  Vec dots[kR][kVectors];
  for (int r = 0; r < kR; ++r)
    for (int i = 0; i < kVectors; ++i) dots[r][i] = zero();
  for (int d = 0; d < dim; ++d) {
    Vec k[kVectors];
    for (int i = 0; i < kVectors; ++i) k[i] = load(keys + d * kPageSize + i * lanes());
    for (int r = 0; r < kR; ++r) {
      const Vec x = set(q[r * dim + d]);
      for (int i = 0; i < kVectors; ++i) dots[r][i] = fma(x, k[i], dots[r][i]);
    }
  }
  for (int r = 0; r < kR; ++r)
    for (int i = 0; i < kVectors; ++i) scores[i] = fma(set(weights[r]), relu(dots[r][i]), scores[i]);
}

// The scores of one token over a whole page.
void score_page(const IndexScoresArgs& a, int64_t t, const float* keys, float* scores) {
  const float* weights = a.head_weights + t * a.heads;
  for (int p = 0; p < kPageSize; p += kVectors * int(lanes())) {
    Vec sums[kVectors];
    for (int i = 0; i < kVectors; ++i) sums[i] = zero();
    int h = 0;
    for (; h + kHeads <= a.heads; h += kHeads)
      add_heads<kHeads>(a.q_row(t, h), weights + h, a.dim, keys + p, sums);
    switch (a.heads - h) {
      case 3: add_heads<3>(a.q_row(t, h), weights + h, a.dim, keys + p, sums); break;
      case 2: add_heads<2>(a.q_row(t, h), weights + h, a.dim, keys + p, sums); break;
      case 1: add_heads<1>(a.q_row(t, h), weights + h, a.dim, keys + p, sums); break;
    }
    for (int i = 0; i < kVectors; ++i) store(sums[i], scores + p + i * lanes());
  }
}

}  // namespace

void index_scores(const IndexScoresArgs& a, Queue& queue) {
  if (a.dim > kMaxDim) return ref::index_scores(a, queue);  // no model has such keys
  const int64_t pages = (int64_t(a.context) + kPageSize - 1) / kPageSize;
  const int64_t blocks = (a.tokens + kTokens - 1) / kTokens;
  queue.parallel_for(blocks * pages, [&](int64_t item) {
    const int64_t page = item % pages, p0 = page * kPageSize;
    const int64_t begin = item / pages * kTokens,
                  end = begin + kTokens < a.tokens ? begin + kTokens : a.tokens;
    const int size = a.context - p0 < kPageSize ? int(a.context - p0) : kPageSize;

    HWY_ALIGN float keys[kMaxDim * kPageSize];
    int sequence = -1, turned = 0;  // whose keys these are, and how many
    for (int64_t t = begin; t < end; ++t) {
      float* scores = a.scores + t * a.scores_stride + p0;
      const int64_t left = a.visible[t] - p0;
      const int seen = left <= 0 ? 0 : left < size ? int(left) : size;
      if (seen > turned || (seen > 0 && sequence != a.sequence_of[t])) {
        sequence = a.sequence_of[t];
        turned = a.k.page_rows == kPageSize && a.k.format == CacheFormat::f32 ? kPageSize : seen;
        turned_keys(a.k, sequence, p0, turned, keys);
      }
      if (seen == kPageSize) {
        score_page(a, t, keys, scores);
      } else if (seen > 0) {
        HWY_ALIGN float page_scores[kPageSize];
        score_page(a, t, keys, page_scores);
        for (int p = 0; p < seen; ++p) scores[p] = page_scores[p];
      }
      for (int p = seen; p < size; ++p) scores[p] = -INFINITY;
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
