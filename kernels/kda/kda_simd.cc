// kernels/kda/kda_simd.cc: the recurrence for single tokens, tiles of 16 tokens for more. A head goes to a
// thread.
//
// A tile is a chunk of the chunked form that is as long as one sub-block. On a CPU the product with the state
// costs the same at every chunk length and the products inside a chunk grow with it; a state of 128 x 128
// stays in the cache from tile to tile, so nothing is won by joining four of them.
//
// With e_t = exp(g_t), the only exponential, and products taken over tokens of the tile:
//   F_t = e_{m+1} .. e_t  after the middle token m,  1 / (e_{t+1} .. e_m)  before it:  F_t / F_s = exp(G_t -
//   G_s) A[t,s]  = beta_t * sum of (k_t F_t) (k_s / F_s)   s < t        no factor leaves [exp(8 g), exp(-8
//   g)]: with Aq[t,s] =          sum of (q_t F_t) (k_s / F_s)   s <= t       g >= -5.0625 that is within 4e17
//   of 1 N_t = beta_t (v_t - (k_t e_1 .. e_t)^T S) - sum of A[t,s] N_s     forward, from t = 1 o_t = (q_t e_1
//   .. e_t)^T S + sum of Aq[t,s] N_s S  <- diag(e_1 .. e_n) S + sum of (k_t e_{t+1} .. e_n) N_t^T
#include <cstring>

#include "kernels/common/simd.h"
#include "kernels/kda/kda.h"

namespace dsa {

namespace DSA_ISA {
namespace {

constexpr int kTile = 16;              // tokens
constexpr int kMaxDim = 256;           // channels of a head
constexpr int kStride = kMaxDim + 16;  // of the rows of a tile: a power of two would share few cache sets
constexpr int kRows = 4;               // rows of a small product that are in registers together
constexpr int kVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;  // and vectors of a row
constexpr int kShort = 8;                              // tokens; fewer go one by one

// What one token of one head brings.
struct Token {
  const float *q, *k, *v, *g;
  float beta;
  float* o;
};

Token token(const KdaArgs& a, int64_t t, int64_t h) {
  return {a.q + t * a.q_stride + h * a.k_dim,
          a.k + t * a.k_stride + h * a.k_dim,
          a.v + t * a.v_stride + h * a.v_dim,
          a.g + (t * a.heads + h) * a.k_dim,
          a.beta[t * a.heads + h],
          a.o + (t * a.heads + h) * a.v_dim};
}

// Calls f<vectors>(j, n) over the columns [0, dim): `vectors` whole vectors at j, or one of n values.
template <int kMost, class F>
void for_each_block(int dim, const F& f) {
  const int step = int(lanes());
  int j = 0;
  for (; j + kMost * step <= dim; j += kMost * step) f.template operator()<kMost>(j, lanes());
  if constexpr (kMost > 1) {
    if (j + kMost / 2 * step <= dim) f.template operator()<kMost / 2>(j, lanes()), j += kMost / 2 * step;
  }
  for (; j < dim; j += step) f.template operator()<1>(j, dim - j < step ? size_t(dim - j) : lanes());
}

// One token. `state` and `next` may be the same.
void step(const KdaArgs& a, const Token& x, const float* state, float* next) {
  HWY_ALIGN float decay[kMaxDim];
  for_each_vector(0, a.k_dim, [&](int64_t d, size_t n) { store(exp(load(x.g + d, n)), decay + d, n); });

  for_each_block<8>(a.v_dim, [&]<int kN>(int j, size_t n) {
    const auto at = [&](const float* p, int i) { return load(p + j + i * lanes(), kN == 1 ? n : lanes()); };
    Vec remembered[kN], u[kN], o[kN];
    for (int i = 0; i < kN; ++i) remembered[i] = o[i] = zero();
    for (int d = 0; d < a.k_dim; ++d) {
      const Vec k = set(x.k[d] * decay[d]);
      const float* s = state + size_t(d) * a.v_dim;
      for (int i = 0; i < kN; ++i) remembered[i] = fma(at(s, i), k, remembered[i]);
    }
    for (int i = 0; i < kN; ++i) u[i] = mul(set(x.beta), sub(at(x.v, i), remembered[i]));
    for (int d = 0; d < a.k_dim; ++d) {
      const Vec k = set(x.k[d]), q = set(x.q[d]), e = set(decay[d]);
      const size_t row = size_t(d) * a.v_dim;
      for (int i = 0; i < kN; ++i) {
        const Vec s = fma(k, u[i], mul(e, at(state + row, i)));
        store(s, next + row + j + i * lanes(), kN == 1 ? n : lanes());
        o[i] = fma(s, q, o[i]);
      }
    }
    for (int i = 0; i < kN; ++i) store(o[i], x.o + j + i * lanes(), kN == 1 ? n : lanes());
  });
}

// The operands of a tile, rows of kStride. Channels from k_dim to the next whole vector are zero.
struct Tile {
  alignas(64) float left_k[kTile][kStride];   // k_t F_t
  alignas(64) float left_q[kTile][kStride];   // q_t F_t
  alignas(64) float right_k[kTile][kStride];  // k_t / F_t
  alignas(64) float in[2][kTile][kStride];    // k_t and q_t with the decay since the tile began
  alignas(64) float out_k[kTile][kStride];    // k_t with the decay until the tile ends
  alignas(64) float decay[kMaxDim];           // of the whole tile
  alignas(64) float a[2][kTile][kTile];       // A and Aq; see products()
  alignas(64) float read[2][kTile][kStride];  // in[] times the state: of k, which becomes N, and of q
};

// Whether every channel's decay on either side of the middle is small enough for prepare().
bool decays_little(const KdaArgs& a, int64_t t0, int rows, int64_t h) {
  const int middle = rows / 2;
  Vec least = zero();
  for_each_vector(0, a.k_dim, [&](int64_t d, size_t n) {
    Vec before = zero(), after = zero();
    for (int t = 0; t < rows; ++t) {
      const Vec g = load(token(a, t0 + t, h).g + d, n);
      if (t <= middle) before = add(before, g);
      if (t > middle) after = add(after, g);
    }
    least = hn::Min(least, hn::Min(before, after));
  });
  return hn::AllFalse(F32(), hn::Lt(least, set(-(kTile / 2 + 1) * kKdaMaxDecay)));
}

int padded(int rows) { return (rows + kRows - 1) / kRows * kRows; }

void prepare(const KdaArgs& a, int64_t t0, int rows, int64_t h, Tile& tile) {
  const int middle = rows / 2;
  for_each_vector(0, a.k_dim, [&](int64_t d, size_t n) {
    Vec e[kTile], k[kTile], q[kTile];
    Vec product = set(1.f);
    for (int t = 0; t < rows; ++t) {
      const Token x = token(a, t0 + t, h);
      e[t] = exp(load(x.g + d, n));
      k[t] = load(x.k + d, n);
      q[t] = load(x.q + d, n);
      product = mul(product, e[t]);
      store(mul(k[t], product), tile.in[0][t] + d);
      store(mul(q[t], product), tile.in[1][t] + d);
    }
    store(product, tile.decay + d);

    product = set(1.f);
    for (int t = rows - 1; t >= 0; --t) {
      store(mul(k[t], product), tile.out_k[t] + d);
      product = mul(product, e[t]);
    }

    const auto scale = [&](int t, Vec left, Vec right) {
      store(mul(k[t], left), tile.left_k[t] + d);
      store(mul(q[t], left), tile.left_q[t] + d);
      store(mul(k[t], right), tile.right_k[t] + d);
    };
    product = set(1.f);
    for (int t = middle; t < rows; ++t) {
      if (t > middle) product = mul(product, e[t]);
      scale(t, product, div(set(1.f), product));
    }
    product = set(1.f);
    for (int t = middle - 1; t >= 0; --t) {
      product = mul(product, e[t + 1]);
      scale(t, div(set(1.f), product), product);
    }
    for (int t = rows; t < padded(rows); ++t) {
      store(zero(), tile.in[0][t] + d);
      store(zero(), tile.in[1][t] + d);
      store(zero(), tile.right_k[t] + d);
    }
  });
}

// A and Aq, four columns at a time. What falls above the diagonal may be huge and is never read.
void products(const KdaArgs& a, int64_t t0, int rows, int64_t h, Tile& tile) {
  const int step = int(lanes());
  for (int t = 0; t < rows; ++t) {
    const float beta = a.beta[(t0 + t) * a.heads + h];
    for (int s = 0; s <= t; s += kRows) {
      Vec k[kRows], q[kRows];
      for (int i = 0; i < kRows; ++i) k[i] = q[i] = zero();
      for (int d = 0; d < a.k_dim; d += step) {
        const Vec left_k = load(tile.left_k[t] + d), left_q = load(tile.left_q[t] + d);
        for (int i = 0; i < kRows; ++i) {
          const Vec right = load(tile.right_k[s + i] + d);
          k[i] = fma(left_k, right, k[i]);
          q[i] = fma(left_q, right, q[i]);
        }
      }
      float sums[2][kRows];
      sum4(k[0], k[1], k[2], k[3], sums[0]);
      sum4(q[0], q[1], q[2], q[3], sums[1]);
      for (int i = 0; i < kRows; ++i) {
        tile.a[0][t][s + i] = beta * sums[0][i];
        tile.a[1][t][s + i] = sums[1][i];
      }
    }
  }
}

// read[] = in[] S.
void read_state(const KdaArgs& a, int rows, const float* state, Tile& tile) {
  for_each_block<kVectors>(a.v_dim, [&]<int kN>(int j, size_t n) {
    for (int which = 0; which < 2; ++which)
      for (int t = 0; t < rows; t += kRows) {
        const float* in = tile.in[which][t];
        Vec sum[kRows][kN];
        for (int r = 0; r < kRows; ++r)
          for (int i = 0; i < kN; ++i) sum[r][i] = zero();
        for (int d = 0; d < a.k_dim; ++d) {
          Vec s[kN];
          for (int i = 0; i < kN; ++i)
            s[i] = load(state + size_t(d) * a.v_dim + j + i * lanes(), kN == 1 ? n : lanes());
          for (int r = 0; r < kRows; ++r) {
            const Vec x = set(in[r * kStride + d]);
            for (int i = 0; i < kN; ++i) sum[r][i] = fma(x, s[i], sum[r][i]);
          }
        }
        for (int r = 0; r < kRows; ++r)
          for (int i = 0; i < kN; ++i) store(sum[r][i], tile.read[which][t + r] + j + i * lanes());
      }
  });
}

// N from what the state remembers, token after token; then the outputs.
void solve(const KdaArgs& a, int64_t t0, int rows, int64_t h, Tile& tile) {
  for_each_block<kVectors>(a.v_dim, [&]<int kN>(int j, size_t n) {
    for (int t = 0; t < rows; ++t) {
      const Token x = token(a, t0 + t, h);
      float *value = tile.read[0][t] + j, *read_q = tile.read[1][t] + j;
      Vec sum[kN], o[kN];
      for (int i = 0; i < kN; ++i) {
        const Vec v = load(x.v + j + i * lanes(), kN == 1 ? n : lanes());
        sum[i] = mul(set(x.beta), sub(v, load(value + i * lanes())));
        o[i] = load(read_q + i * lanes());
      }
      for (int s = 0; s < t; ++s) {
        const Vec k = set(-tile.a[0][t][s]), q = set(tile.a[1][t][s]);
        for (int i = 0; i < kN; ++i) {
          const Vec earlier = load(tile.read[0][s] + j + i * lanes());
          sum[i] = fma(k, earlier, sum[i]);
          o[i] = fma(q, earlier, o[i]);
        }
      }
      const Vec q = set(tile.a[1][t][t]);
      for (int i = 0; i < kN; ++i) {
        store(sum[i], value + i * lanes());
        store(fma(q, sum[i], o[i]), x.o + j + i * lanes(), kN == 1 ? n : lanes());
      }
    }
  });
}

// S <- diag(decay) S + out_k^T N.
void write_state(const KdaArgs& a, int rows, float* state, const Tile& tile) {
  for_each_block<kVectors>(a.v_dim, [&]<int kN>(int j, size_t n) {
    const auto update = [&]<int kR>(int d) {
      Vec s[kR][kN];
      for (int r = 0; r < kR; ++r)
        for (int i = 0; i < kN; ++i)
          s[r][i] = mul(set(tile.decay[d + r]),
                        load(state + size_t(d + r) * a.v_dim + j + i * lanes(), kN == 1 ? n : lanes()));
      for (int t = 0; t < rows; ++t) {
        Vec value[kN];
        for (int i = 0; i < kN; ++i) value[i] = load(tile.read[0][t] + j + i * lanes());
        for (int r = 0; r < kR; ++r) {
          const Vec k = set(tile.out_k[t][d + r]);
          for (int i = 0; i < kN; ++i) s[r][i] = fma(k, value[i], s[r][i]);
        }
      }
      for (int r = 0; r < kR; ++r)
        for (int i = 0; i < kN; ++i)
          store(s[r][i], state + size_t(d + r) * a.v_dim + j + i * lanes(), kN == 1 ? n : lanes());
    };
    int d = 0;
    for (; d + kRows <= a.k_dim; d += kRows) update.template operator()<kRows>(d);
    for (; d < a.k_dim; ++d) update.template operator()<1>(d);
  });
}

}  // namespace

void kda_step(const KdaArgs& a, Queue& queue) {
  if (a.k_dim > kMaxDim) return ref::kda_step(a, queue);  // no model has such heads
  queue.parallel_for(int64_t(a.num_sequences) * a.heads, [&](int64_t i) {
    const KdaSequence& sequence = a.sequences[i / a.heads];
    const int64_t h = i % a.heads;
    const size_t head = size_t(h) * a.k_dim * a.v_dim;
    step(a, token(a, sequence.row_begin, h), sequence.state + head, sequence.next_state + head);
  });
}

void kda_chunk(const KdaArgs& a, Queue& queue) {
  if (a.k_dim > kMaxDim || a.v_dim > kMaxDim) return ref::kda_chunk(a, queue);
  queue.parallel_for(int64_t(a.num_sequences) * a.heads, [&](int64_t i) {
    const KdaSequence& sequence = a.sequences[i / a.heads];
    const int64_t h = i % a.heads;
    const size_t head = size_t(h) * a.k_dim * a.v_dim;
    const float* state = sequence.state + head;
    float* next = sequence.next_state + head;

    if (sequence.rows > 0 && sequence.rows < kShort) {
      for (int t = 0; t < sequence.rows; ++t)
        step(a, token(a, sequence.row_begin + t, h), t == 0 ? state : next, next);
      return;
    }
    memcpy(next, state, size_t(a.k_dim) * a.v_dim * sizeof(float));
    Tile tile;
    for (int t = 0; t < sequence.rows; t += kTile) {
      const int64_t t0 = int64_t(sequence.row_begin) + t;
      const int rows = sequence.rows - t < kTile ? sequence.rows - t : kTile;
      if (!decays_little(a, t0, rows, h)) {
        for (int r = 0; r < rows; ++r) step(a, token(a, t0 + r, h), next, next);
        continue;
      }
      prepare(a, t0, rows, h, tile);
      products(a, t0, rows, h, tile);
      read_state(a, rows, next, tile);
      solve(a, t0, rows, h, tile);
      write_state(a, rows, next, tile);
    }
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
