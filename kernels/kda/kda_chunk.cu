// kernels/kda/kda_chunk.cu: the chunked form on the tensor cores, chunks of 16 tokens.
//
// With e_t = exp(g_t), G_t = e_1 .. e_t and F_t as G_t counted from the middle of the chunk, products over its tokens:
//   A[t, s]  = sum of (k_t F_t) (k_s / F_s)   s < t          T = (1 + diag(beta) A)^-1 diag(beta)
//   Aq[t, s] = sum of (q_t F_t) (k_s / F_s)   s <= t
//   N = T (V - (K G) S)     O = (Q G) S + Aq N     S <- diag(G_16) S + (K G_16 / G)^T N
// T and Aq need no state: a first kernel makes them, all chunks at once. A second one goes through the chunks of a
// sequence with the state in registers. Every factor is cut in kPieces bf16, two on the fast route and three on the exact
// one; what falls below the last piece is left out of their products. Sums are f32.
//
// The tokens of a chunk have the order in which a thread that makes four tokens in a row makes whole fragments: column or
// row 8 h + 2 w + e is token 4 w + 2 h + e.
#include <algorithm>

#include "kernels/common/cuda.cuh"
#include "kernels/kda/kda.h"

namespace dsa {
namespace {

constexpr int kChunk = 16;         // tokens
constexpr int kDim = 128;          // channels of keys, filled up with zeros
constexpr int kSteps = kDim / 16;  // of a product over channels
constexpr int kMakers = 4;         // warps that make the operands of a chunk, four tokens each
constexpr int kColumns = 32;       // of the state, in a block
constexpr int kSplit = 2;          // warps that share 16 columns, half of the channels each
constexpr int kReaders = kColumns / 16 * kSplit;
constexpr float kLeastDecay = 0x1.8p-66f;  // exp(-9 * kKdaMaxDecay), of half a chunk
constexpr int kFragments = 2 * 2 * kWarp;  // of T and Aq, two tiles of 8 tokens each

// What lane 4 g + q holds of a 16 x 8 operand: rows 2 q, 2 q + 1 and 2 q + 8, 2 q + 9 of column g.
template <int kPieces>
struct alignas(kPieces == 2 ? 16 : 8) Fragment {
  uint2 piece[kPieces];
};
// Of a 16-row operand.
template <int kPieces>
struct Rows {
  uint32_t piece[kPieces][4];
};

// Pairs that add up to both values, from the largest on.
template <int kPieces>
__device__ void cut_rounded(float first, float second, uint32_t (&pairs)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    pairs[i] = round_to_bf16x2(first, second);
    first -= bits_to_f32(pairs[i] << 16), second -= bits_to_f32(pairs[i] & 0xffff0000u);
  }
}
template <int kPieces>
__device__ Fragment<kPieces> fragment(float a, float b, float c, float d) {
  uint32_t first[kPieces], second[kPieces];
  cut_rounded(a, b, first), cut_rounded(c, d, second);
  Fragment<kPieces> result;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) result.piece[i] = {first[i], second[i]};
  return result;
}
// Two tiles of sums, side by side, become the rows of a product.
template <int kPieces>
__device__ Rows<kPieces> rows_of(const float (&left)[4], const float (&right)[4]) {
  uint32_t pairs[4][kPieces];
  cut_rounded(left[0], left[1], pairs[0]), cut_rounded(left[2], left[3], pairs[1]);
  cut_rounded(right[0], right[1], pairs[2]), cut_rounded(right[2], right[3], pairs[3]);
  Rows<kPieces> rows;
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) rows.piece[i][j] = pairs[j][i];
  return rows;
}
template <int kN>
__device__ void add(float (&sum)[kN][4], const float (&small)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] += small[n][i];
}
// sum[n] += rows * columns[n]: the products of the first pieces in `sum`, the others in `small`. Sums take turns, so that
// none waits for its last product. Tensor cores cut sums off rather than round them: three pieces are added outside.
template <int kPieces, int kN>
__device__ void multiply(float (&sum)[kN][4], float (&small)[kN][4], const Rows<kPieces>& rows,
                         const Fragment<kPieces> (&columns)[kN]) {
  float fresh[kN][4] = {};
  auto& first = kPieces == 3 ? fresh : sum;
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
#pragma unroll
    for (int j = 0; i + j < kPieces; ++j)
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const uint32_t column[2] = {columns[n].piece[j].x, columns[n].piece[j].y};
        mma(i + j == 0 ? first[n] : small[n], rows.piece[i], column);
      }
  if (kPieces == 3) add(sum, fresh);
}

// Where the fragment of a lane lies in its tile, so that neither those who write nor those who read share a bank. A
// maker writes eight steps at once, or the eight columns of two tiles.
__device__ int step_slot(int g, int q, int step) { return (g * 4 + q) ^ (step % 2 * 4); }
__device__ int tile_slot(int g, int q, int tile) {
  return (g & 6) * 4 + (((g & 1) ^ (tile / 2 & 1)) * 4 | (q ^ (g / 2)));
}

// The chunks of the sequences before `end`, to every lane of a warp.
__device__ int chunks_before(const KdaArgs& a, int end) {
  int chunks = 0;
  for (int i = threadIdx.x % kWarp; i < end; i += kWarp)
    chunks += (a.sequences[i].rows + kChunk - 1) / kChunk;
  return __reduce_add_sync(kAllLanes, chunks);
}

// e^g and 1 / x: on the fast route to some 2^-21 of them, on the exact one rounded once. A last bit that is wrong the same
// way in every token adds up where nothing decays.
template <int kPieces>
__device__ float decay_of(float g) {
  return kPieces == 2 ? power_of_two(g * 1.4426950408889634f) : float(exp(double(g)));
}
template <int kPieces>
__device__ float inverse_of(float x) {
  return kPieces == 2 ? __fdividef(1, x) : 1 / x;
}

// What a maker holds: four channels of four tokens. Lane 4 j + q has channels 16 j + 2 q, + 1, + 8, + 9.
struct Tokens {
  float k[4][4], q[4][4], e[4][4];  // [token, channel]; e is the log decay until made() is called

  template <bool kWhole>
  __device__ void read(const KdaArgs& a, int h, int64_t t_begin, int rows) {
    const int lane = threadIdx.x % kWarp, d = lane / 4 * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t t = t_begin + i;
      const float* at[3] = {a.k + t * a.k_stride + int64_t(h) * a.k_dim,
                            a.q + t * a.q_stride + int64_t(h) * a.k_dim, a.g + (t * a.heads + h) * a.k_dim};
      float(*to[3])[4] = {k, q, e};
#pragma unroll
      for (int which = 0; which < 3; ++which)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float *first = &to[which][i][2 * half], *second = first + 1;
          const int channel = d + 8 * half;
          if constexpr (kWhole) {
            const float2 pair =
                i < rows ? __ldg(reinterpret_cast<const float2*>(at[which] + channel)) : float2{0, 0};
            *first = pair.x, *second = pair.y;
          } else {
            *first = i < rows && channel < a.k_dim ? at[which][channel] : 0;
            *second = i < rows && channel + 1 < a.k_dim ? at[which][channel + 1] : 0;
          }
        }
    }
  }
  // Decays instead of their logs; their products go to products[maker].
  template <int kPieces>
  __device__ void made(float (*products)[kDim]) {
    const int lane = threadIdx.x % kWarp, d = lane / 4 * 16 + lane % 4 * 2;
    float product[4] = {1, 1, 1, 1};
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) e[i][c] = decay_of<kPieces>(e[i][c]), product[c] *= e[i][c];
#pragma unroll
    for (int c = 0; c < 4; ++c) products[threadIdx.x / kWarp][d + c / 2 * 8 + c % 2] = product[c];
  }
  // The product of products[begin .. end) of each channel.
  __device__ static void product(const float (*products)[kDim], int begin, int end, float (&result)[4]) {
    const int lane = threadIdx.x % kWarp, d = lane / 4 * 16 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float first = 1, second = 1;
#pragma unroll
      for (int w = 0; w < kMakers; ++w) {
        const float2 of = *reinterpret_cast<const float2*>(&products[w][d + 8 * half]);
        const bool counts = w >= begin && w < end;
        first *= counts ? of.x : 1, second *= counts ? of.y : 1;
      }
      result[2 * half] = first, result[2 * half + 1] = second;
    }
  }
};

__host__ __device__ inline bool aligned_to(const void* pointer, int64_t stride, int floats) {
  return uint64_t(pointer) % (4 * floats) == 0 && stride % floats == 0;
}

// Grid (chunks, heads). fragments [chunk, heads, kFragments]: those of T, then those of Aq.
// Reads q, k and g once.
template <int kPieces, bool kWhole>
__global__ void __launch_bounds__(kMakers* kWarp)
    kda_within_kernel(const __grid_constant__ KdaArgs a, Fragment<kPieces>* fragments) {
  __shared__ Fragment<kPieces> operands[3][kSteps][2][kWarp];  // k F, q F and k / F
  alignas(8) __shared__ float products[kMakers][kDim];
  __shared__ float inside[3][kChunk][kChunk + 1];  // A, Aq and T, by token
  begin_kernel();
  const int h = blockIdx.y, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;

  int chunk = int(blockIdx.x), at = -1;  // becomes the chunk within sequence `at`
  for (int first = 0; at < 0 && first < a.num_sequences; first += kWarp) {
    const int i = first + lane;
    const int chunks = i < a.num_sequences ? (a.sequences[i].rows + kChunk - 1) / kChunk : 0;
    int until = chunks;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const int before = __shfl_up_sync(kAllLanes, until, lanes);
      if (lane >= lanes) until += before;
    }
    const unsigned beyond = __ballot_sync(kAllLanes, until > chunk);
    const int found = beyond ? __ffs(int(beyond)) - 1 : kWarp - 1;
    const int before = __shfl_sync(kAllLanes, until - chunks, found),
              all = __shfl_sync(kAllLanes, until, found);
    if (beyond)
      at = first + found, chunk -= before;
    else
      chunk -= all;
  }
  if (at < 0) return;
  const KdaSequence sequence = a.sequences[at];
  const int64_t t_begin = int64_t(sequence.row_begin) + chunk * kChunk;
  const int count = min(kChunk, sequence.rows - chunk * kChunk);

  Tokens tokens;
  tokens.read<kWhole>(a, h, t_begin + warp * 4, count - warp * 4);
  tokens.made<kPieces>(products);
  __syncthreads();

  // F is 1 at token 7, products of decays after it, reciprocals of them before.
  float scale[4];
  bool strong = false;
  Tokens::product(products, warp / 2 * 2, warp / 2 * 2 + 2, scale);
#pragma unroll
  for (int c = 0; c < 4; ++c) strong |= !(scale[c] >= kLeastDecay);
  if (!__syncthreads_or(strong)) {
    const int j = lane / 4, q = lane % 4;
    const bool after = warp >= kMakers / 2;
    Tokens::product(products, after ? 2 : warp + 1, after ? warp : 2, scale);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = after ? n : 3 - n;
      float left_k[4], left_q[4], right_k[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float e = after ? tokens.e[n][c] : tokens.e[3 - n][c],
                    k = after ? tokens.k[n][c] : tokens.k[3 - n][c],
                    query = after ? tokens.q[n][c] : tokens.q[3 - n][c];
        if (after) scale[c] *= e;
        const float inverse = inverse_of<kPieces>(scale[c]), left = after ? scale[c] : inverse,
                    right = after ? inverse : scale[c];
        left_k[c] = k * left, left_q[c] = query * left, right_k[c] = k * right;
        if (!after) scale[c] *= e;
      }
      const int slot = step_slot(2 * warp + i % 2, q, j);
      operands[0][j][i / 2][slot] = fragment<kPieces>(left_k[0], left_k[1], left_k[2], left_k[3]);
      operands[1][j][i / 2][slot] = fragment<kPieces>(left_q[0], left_q[1], left_q[2], left_q[3]);
      operands[2][j][i / 2][slot] = fragment<kPieces>(right_k[0], right_k[1], right_k[2], right_k[3]);
    }
    __syncthreads();

    const int which = warp / 2, n = warp % 2, g = lane / 4;  // tile n of A or Aq
    float sum[2][4] = {}, small[2][4] = {};                  // of even and odd steps
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int from = step_slot(g, q, step);
      const Fragment<kPieces>&top = operands[which][step][0][from], &bottom = operands[which][step][1][from];
      Rows<kPieces> rows;
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        rows.piece[i][0] = top.piece[i].x, rows.piece[i][1] = bottom.piece[i].x,
        rows.piece[i][2] = top.piece[i].y, rows.piece[i][3] = bottom.piece[i].y;
      const Fragment<kPieces> columns[1] = {operands[2][step][n][from]};
      multiply(reinterpret_cast<float(&)[1][4]>(sum[step % 2]),
               reinterpret_cast<float(&)[1][4]>(small[step % 2]), rows, columns);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      inside[which][g / 2 * 4 + i / 2 * 2 + g % 2][4 * q + 2 * n + i % 2] =
          sum[0][i] + sum[1][i] + (small[0][i] + small[1][i]);
  } else {
    // Some channel forgets too fast for F: every pair of tokens has a decay of its own.
    for (int pair = threadIdx.x; pair < kChunk * kChunk; pair += kMakers * kWarp) {
      const int t = pair / kChunk, s = pair % kChunk;
      float sum_k = 0, sum_q = 0;
      for (int d = 0; t < count && s <= t && d < a.k_dim; ++d) {
        float decay = 0;
        for (int i = s + 1; i <= t; ++i) decay += a.g[((t_begin + i) * a.heads + h) * a.k_dim + d];
        const float right = expf(decay) * a.k[(t_begin + s) * a.k_stride + int64_t(h) * a.k_dim + d];
        sum_k += a.k[(t_begin + t) * a.k_stride + int64_t(h) * a.k_dim + d] * right;
        sum_q += a.q[(t_begin + t) * a.q_stride + int64_t(h) * a.k_dim + d] * right;
      }
      inside[0][t][s] = sum_k, inside[1][t][s] = sum_q;
    }
  }
  __syncthreads();

  // Column c of T, forward from its first token.
  if (threadIdx.x < kChunk) {
    const int c = threadIdx.x;
    float x[kChunk], beta_c = c < count ? a.beta[(t_begin + c) * a.heads + h] : 0;
#pragma unroll
    for (int t = 0; t < kChunk; ++t) {
      const float beta = t < count ? a.beta[(t_begin + t) * a.heads + h] : 0;
      float sum = 0;
#pragma unroll
      for (int s = 0; s < t; ++s) sum += inside[0][t][s] * x[s];
      x[t] = t < c ? 0 : (t == c ? beta_c : 0) - beta * sum;
    }
#pragma unroll
    for (int t = 0; t < kChunk; ++t) inside[2][t][c] = x[t];
  }
  __syncthreads();
  const int which = warp / 2, n = warp % 2, g = lane / 4, q = lane % 4, t = g / 2 * 4 + n * 2 + g % 2;
  const auto value = [&](int s) { return s <= t ? inside[2 - which][t][s] : 0; };
  fragments[(int64_t(blockIdx.x) * a.heads + h) * kFragments + (which * 2 + n) * kWarp + lane] =
      fragment<kPieces>(value(4 * q), value(4 * q + 1), value(4 * q + 2), value(4 * q + 3));
}

// Shared memory of kda_across_kernel.
template <int kPieces>
struct Stage {
  Fragment<kPieces> in[2][kSteps][2][kWarp];  // k G and q G
  Fragment<kPieces> out[kDim / 8][kWarp];     // k G_16 / G
  float decay[kDim];                          // G_16
};
template <int kPieces>
struct Across {
  Stage<kPieces> stages[2];
  float products[2][kMakers][kDim];
  float4 parts[kReaders][4][kWarp];  // of (K G) S and (Q G) S, of half the channels each
};

// k G and q G of a chunk, from what all makers have multiplied.
template <int kPieces>
__device__ void make_in(const Tokens& tokens, const float (*products)[kDim], Stage<kPieces>& stage) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, j = lane / 4, q = lane % 4;
  float scale[4];
  Tokens::product(products, 0, warp, scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) scale[c] *= tokens.e[i][c];
    const int slot = step_slot(2 * warp + i % 2, q, j);
    const auto &k = tokens.k[i], &query = tokens.q[i];
    stage.in[0][j][i / 2][slot] =
        fragment<kPieces>(k[0] * scale[0], k[1] * scale[1], k[2] * scale[2], k[3] * scale[3]);
    stage.in[1][j][i / 2][slot] =
        fragment<kPieces>(query[0] * scale[0], query[1] * scale[1], query[2] * scale[2], query[3] * scale[3]);
  }
  if (warp == kMakers - 1)
#pragma unroll
    for (int c = 0; c < 4; ++c) stage.decay[16 * j + 2 * q + c / 2 * 8 + c % 2] = scale[c];
}
// k G_16 / G.
template <int kPieces>
__device__ void make_out(const Tokens& tokens, const float (*products)[kDim], Stage<kPieces>& stage) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, j = lane / 4, q = lane % 4;
  float after[4];
  Tokens::product(products, warp + 1, kMakers, after);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float k[4];
#pragma unroll
    for (int i = 3; i >= 0; --i) k[i] = tokens.k[i][c] * after[c], after[c] *= tokens.e[i][c];
    const int tile = 2 * j + c / 2;
    stage.out[tile][tile_slot(2 * q + c % 2, warp, tile)] = fragment<kPieces>(k[0], k[1], k[2], k[3]);
  }
}

// Grid (ceil(v_dim / kColumns), heads, num_sequences). The makers are one chunk ahead of the readers.
// Reads q, k and g once per block, v and the fragments once per 16 columns; the state once.
template <int kPieces, bool kWhole>
__global__ void __launch_bounds__((kMakers + kReaders) * kWarp, kPieces == 2 ? 2 : 1)
    kda_across_kernel(const __grid_constant__ KdaArgs a, const Fragment<kPieces>* fragments) {
  auto& shared = *dynamic_shared<Across<kPieces>>();
  begin_kernel();
  const KdaSequence sequence = a.sequences[blockIdx.z];
  const int h = blockIdx.y, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int chunks = (sequence.rows + kChunk - 1) / kChunk;

  if (warp < kMakers) {
    Tokens even, odd;
    const auto read = [&](int chunk, Tokens& tokens) {
      const int begin = chunk * kChunk + warp * 4;
      tokens.read<kWhole>(a, h, int64_t(sequence.row_begin) + begin,
                          chunk < chunks ? sequence.rows - begin : 0);
    };
    const auto step = [&](int chunk, Tokens& tokens, Tokens& next) {
      const bool exists = chunk < chunks;
      Stage<kPieces>& stage = shared.stages[chunk % 2];
      if (exists) make_in(tokens, shared.products[chunk % 2], stage);
      __syncthreads();
      if (exists) make_out(tokens, shared.products[chunk % 2], stage);
      if (chunk + 1 < chunks) next.made<kPieces>(shared.products[(chunk + 1) % 2]);
      read(chunk + 2, tokens);
      __syncthreads();
    };
    read(0, even);
    read(1, odd);
    even.made<kPieces>(shared.products[0]);
    __syncthreads();
    for (int chunk = 0; chunk <= chunks; chunk += 2) {
      step(chunk, even, odd);
      if (chunk + 1 <= chunks) step(chunk + 1, odd, even);
    }
    return;
  }

  const int reader = warp - kMakers, half = reader % kSplit, g = lane / 4, q = lane % 4;
  const int v_begin = blockIdx.x * kColumns + reader / kSplit * 16, d_begin = half * (kDim / kSplit);
  constexpr int kTiles = kDim / kSplit / 8;
  // The state turned round: rows are its columns g and g + 8, columns its channels 2 q and 2 q + 1 of a tile.
  float s[kTiles][4];
  const auto state_at = [&](int m, int i) {
    const int d = d_begin + 8 * m + 2 * q + i % 2, column = v_begin + g + i / 2 * 8;
    return d < a.k_dim && column < a.v_dim ? (int64_t(h) * a.k_dim + d) * a.v_dim + column : int64_t(-1);
  };
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[m][i] = state_at(m, i) >= 0 ? sequence.state[state_at(m, i)] : 0;

  const Fragment<kPieces>* within =
      fragments + (int64_t(chunks_before(a, int(blockIdx.z))) * a.heads + h) * kFragments + lane;
  float v[2][4];
  Fragment<kPieces> solve[2], query[1];
  // Value i of tile n is that of token 2 n + i % 2 behind the first of this lane, in column 8 (i / 2) of v and o.
  const int64_t t_begin = int64_t(sequence.row_begin) + 4 * q;
  const float* v_at = a.v + t_begin * a.v_stride + int64_t(h) * a.v_dim + v_begin + g;
  float* o_at = a.o + (t_begin * a.heads + h) * a.v_dim + v_begin + g;
  const int64_t o_stride = int64_t(a.heads) * a.v_dim;
  const bool columns_exist[2] = {v_begin + g < a.v_dim, v_begin + g + 8 < a.v_dim};
  const auto read = [&](int chunk) {
    if (chunk >= chunks) return;
    const Fragment<kPieces>* at = within + int64_t(chunk) * a.heads * kFragments;
    solve[0] = at[0], solve[1] = at[kWarp], query[0] = at[(2 + half) * kWarp];
    const int left = sequence.rows - chunk * kChunk - 4 * q;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[n][i] = 2 * n + i % 2 < left && columns_exist[i / 2]
                      ? __ldg(v_at + (2 * n + i % 2) * a.v_stride + i / 2 * 8)
                      : 0;
    v_at += kChunk * a.v_stride;
  };
  read(0);
  for (int barrier = 0; barrier < 3; ++barrier) __syncthreads();  // the makers begin
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Stage<kPieces>& stage = shared.stages[chunk % 2];
    float sum[4][4] = {}, small[4][4] = {};  // of k in both tiles of tokens, then of q
#pragma unroll
    for (int step = 0; step < kSteps / kSplit; ++step) {
      const Rows<kPieces> rows = rows_of<kPieces>(s[2 * step], s[2 * step + 1]);
      const int at = half * (kSteps / kSplit) + step, slot = step_slot(g, q, at);
      const Fragment<kPieces> columns[4] = {stage.in[0][at][0][slot], stage.in[0][at][1][slot],
                                            stage.in[1][at][0][slot], stage.in[1][at][1][slot]};
      multiply(sum, small, rows, columns);
    }
    add(sum, small);
#pragma unroll
    for (int part = 0; part < 4; ++part)
      shared.parts[reader][part][lane] = float4{sum[part][0], sum[part][1], sum[part][2], sum[part][3]};
    __syncthreads();

#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float4 other = shared.parts[reader ^ 1][part][lane];
      sum[part][0] += other.x, sum[part][1] += other.y, sum[part][2] += other.z, sum[part][3] += other.w;
    }
    float rest[2][4], updates[2][4] = {}, small_updates[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) rest[n][i] = v[n][i] - sum[n][i];
    const Rows<kPieces> unsolved = rows_of<kPieces>(rest[0], rest[1]);
    multiply(updates, small_updates, unsolved, solve);
    add(updates, small_updates);
    const Rows<kPieces> update = rows_of<kPieces>(updates[0], updates[1]);
    float o[1][4], small_o[1][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) o[0][i] = half ? sum[3][i] : sum[2][i];
    multiply(o, small_o, update, query);
    add(o, small_o);
    const int left = sequence.rows - chunk * kChunk - 4 * q;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (2 * half + i % 2 < left && columns_exist[i / 2])
        o_at[(2 * half + i % 2) * o_stride + i / 2 * 8] = o[0][i];
    o_at += kChunk * o_stride;
    read(chunk + 1);

#pragma unroll
    for (int m = 0; m < kTiles; m += 4) {
      Fragment<kPieces> columns[4];
      float added[4][4] = {}, small_added[4][4] = {};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int tile = d_begin / 8 + m + n;
        columns[n] = stage.out[tile][tile_slot(g, q, tile)];
      }
      multiply(added, small_added, update, columns);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 decay = *reinterpret_cast<const float2*>(&stage.decay[d_begin + 8 * (m + n) + 2 * q]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          s[m + n][i] = __fmaf_rn(s[m + n][i], i % 2 ? decay.y : decay.x, added[n][i] + small_added[n][i]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (state_at(m, i) >= 0) sequence.next_state[state_at(m, i)] = s[m][i];
}

template <int kPieces>
bool chunked(const KdaArgs& a, CudaQueue& queue) {
  const int64_t chunks = a.rows / kChunk + a.num_sequences;
  if (size_t(chunks * a.heads * kFragments) * sizeof(Fragment<kPieces>) > queue.scratch_bytes()) return false;
  const bool whole = a.k_dim == kDim && aligned_to(a.q, a.q_stride, 2) && aligned_to(a.k, a.k_stride, 2) &&
                     aligned_to(a.g, 0, 2);
  auto* fragments = static_cast<Fragment<kPieces>*>(queue.scratch());
  launch(queue, dim3(unsigned(chunks), unsigned(a.heads)), kMakers * kWarp, 0,
         whole ? kda_within_kernel<kPieces, true> : kda_within_kernel<kPieces, false>, a, fragments);
  const dim3 grid(unsigned(ceil_div(a.v_dim, kColumns)), unsigned(a.heads), unsigned(a.num_sequences));
  // Few blocks start while the kernel before still ends: none shares a multiprocessor with another.
  const CudaDevice& device = queue.device();
  const bool alone = int64_t(grid.x) * grid.y * grid.z <= device.multiprocessors;
  const size_t shared = std::max(sizeof(Across<kPieces>), alone ? device.shared_bytes_max / 2 + 1024 : 0);
  launch(queue, grid, (kMakers + kReaders) * kWarp, shared,
         whole ? kda_across_kernel<kPieces, true> : kda_across_kernel<kPieces, false>, a, fragments);
  return true;
}

}  // namespace

void cuda::kda_chunk(const KdaArgs& a, Queue& queue) {
  auto& cuda_queue = static_cast<CudaQueue&>(queue);
  const bool few = a.rows<kChunk, wide = a.k_dim> kDim;
  if (few || wide || !(a.route == Route::fast ? chunked<2>(a, cuda_queue) : chunked<3>(a, cuda_queue)))
    kda_by_token(a, queue);
}

}  // namespace dsa
