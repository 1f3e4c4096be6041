// kernels/common/dot_rows.h: rows times weight rows, y[r, o] = w[o] . x[r], for groups with a matrix each.
// The engine of linear, expert_linear, head_linear and the exact route of mxfp4_linear.
//
// Order of a sum: lane j adds the products of columns j, j + kLanes, j + 2 kLanes, ... one after the other,
// then sum4 adds the lanes. Every path below keeps this order, so a row alone equals the same row among
// others.
//
// Few rows   Four weight rows stream past up to kRowTile rows of x; the sums stay in registers.
// Many rows  Columns in runs of kDepth: a tile of x stays in L1 while kOutBlock weight rows pass over it from
// L2.
//            Between runs the sums wait, as vectors, on the stack.
#pragma once

#include "kernels/common/queue.h"
#include "kernels/common/simd.h"

namespace dsa {
namespace DSA_ISA {

constexpr int kOutTile = 4;
constexpr int kRowTile = kLanes == 16 ? 6 : 3;  // 24 sums of 32 registers, or 12 of 16
constexpr int kRowBlock = 72;                   // rows whose sums wait on the stack: 144 KiB with 16 lanes
constexpr int kOutBlock = 32;
constexpr int kWidenRows = 128;           // from here on a tile of bf16 weights is widened once
constexpr int kDepth = 512;               // columns
constexpr int64_t kItemBytes = 64 << 10;  // weights that a thread takes at a time, few rows

// Rows of one group. Weights is one of the classes below.
template <class Weights>
struct DotGroup {
  const float* x;
  Weights weights;
  float* y;
  int rows;
};

// A matrix in f32 or bf16, used where it lies.
template <class T>
struct PlainWeights {
  using Element = T;
  static constexpr bool kUnpacks = false;

  const T* data;     // [out_dim, in_dim]
  int64_t row_size;  // elements

  const T* tile(int o, int /*outs*/, int i, int /*depth*/, T* /*scratch*/) const {
    return data + o * row_size + i;
  }
  int64_t tile_stride(int /*depth*/) const { return row_size; }
};

// A bf16 matrix for many rows: its tile is widened to f32 once, instead of by every row tile that passes over it.
struct WidenedWeights {
  using Element = float;
  static constexpr bool kUnpacks = true;

  const bf16* data;
  int64_t row_size;

  const float* tile(int o, int outs, int i, int depth, float* scratch) const {
    const int whole = depth / kLanes * kLanes;
    for (int j = 0; j < outs; ++j) {
      const bf16* from = data + (o + j) * row_size + i;
      float* to = scratch + j * depth;
      for (int k = 0; k < whole; k += kLanes) store(load(from + k), to + k);
      for (int k = whole; k < depth; ++k) to[k] = to_f32(from[k]);
    }
    return scratch;
  }
  int64_t tile_stride(int depth) const { return depth; }
};

// An FP8 matrix, widened to f32 tile by tile.
struct Fp8Weights {
  using Element = float;
  static constexpr bool kUnpacks = true;

  const uint8_t* codes;  // [out_dim, row_size]
  const float* scales;   // [ceil(out_dim / kFp8Block), ceil(row_size / kFp8Block)]
  int64_t row_size;

  const float* tile(int o, int outs, int i, int depth, float* scratch) const {
    const int64_t blocks = (row_size + kFp8Block - 1) / kFp8Block;
    for (int j = 0; j < outs; ++j) {
      const uint8_t* row = codes + (o + j) * row_size + i;
      const float* row_scales = scales + (o + j) / kFp8Block * blocks;
      float* to = scratch + j * depth;
      for (int begin = 0; begin < depth; begin += kFp8Block - (i + begin) % kFp8Block) {
        const int run = kFp8Block - (i + begin) % kFp8Block;
        const int end = depth < begin + run ? depth : begin + run;
        const float scale = row_scales[(i + begin) / kFp8Block];
        int k = begin;
        for (; k + kLanes <= end; k += kLanes) store(mul(load_e4m3(row + k), set(scale)), to + k);
        for (; k < end; ++k) to[k] = e4m3_to_f32(row[k]) * scale;
      }
    }
    return scratch;
  }
  int64_t tile_stride(int depth) const { return depth; }
};

template <class Weights>
inline const Weights& for_many_rows(const Weights& weights) {
  return weights;
}
inline WidenedWeights for_many_rows(const PlainWeights<bf16>& weights) {
  return {weights.data, weights.row_size};
}

// sums[r][o] += columns [0, depth) of x row r times those of w row o.
template <int R, int O, class T>
inline void dot_tile(const float* x, int64_t x_stride, const T* w, int64_t w_stride, int depth,
                     Vec (&sums)[R][O]) {
  const int whole = depth / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes) {
    Vec weight[O];
#pragma GCC unroll 8
    for (int o = 0; o < O; ++o) weight[o] = load(w + o * w_stride + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec value = load(x + r * x_stride + i);
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o) sums[r][o] = fma(value, weight[o], sums[r][o]);
    }
  }
  if (whole == depth) return;
  for (int r = 0; r < R; ++r) {
    const Vec value = load(x + r * x_stride + whole, size_t(depth - whole));
    for (int o = 0; o < O; ++o)
      sums[r][o] = fma(value, load(w + o * w_stride + whole, size_t(depth - whole)), sums[r][o]);
  }
}

// In the order of sum4.
inline float sum1(Vec v) {
  float sums[4];
  sum4(v, zero(), zero(), zero(), sums);
  return sums[0];
}

// Outputs [o, o + O) of R rows.
template <int R, int O, class T>
inline void few_rows_tile(const float* x, int64_t x_stride, const T* w, int64_t w_stride, int in_dim,
                          float* y, int64_t y_stride) {
  Vec sums[R][O];
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) sums[r][o] = zero();
  dot_tile<R, O>(x, x_stride, w, w_stride, in_dim, sums);
  for (int r = 0; r < R; ++r) {
    if constexpr (O == kOutTile)
      sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], y + r * y_stride);
    else
      y[r * y_stride] = sum1(sums[r][0]);
  }
}

template <int R, class T>
void few_rows(const float* x, int64_t x_stride, const T* w, int64_t w_stride, int in_dim, int outs, float* y,
              int64_t y_stride) {
  int o = 0;
  for (; o + kOutTile <= outs; o += kOutTile)
    few_rows_tile<R, kOutTile>(x, x_stride, w + o * w_stride, w_stride, in_dim, y + o, y_stride);
  for (; o < outs; ++o) few_rows_tile<R, 1>(x, x_stride, w + o * w_stride, w_stride, in_dim, y + o, y_stride);
}

// Adds one run of columns to the sums of a row block, kept as [rows][kOutBlock] vectors.
template <int R, int O, class T>
inline void many_rows_tile(const float* x, int64_t x_stride, const T* w, int64_t w_stride, int depth,
                           bool first, float* kept) {
  Vec sums[R][O];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < O; ++o) sums[r][o] = first ? zero() : load(kept + (r * kOutBlock + o) * kLanes);
  dot_tile<R, O>(x, x_stride, w, w_stride, depth, sums);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < O; ++o) store(sums[r][o], kept + (r * kOutBlock + o) * kLanes);
}

template <int R, class T>
void many_rows_run(const float* x, int64_t x_stride, const T* w, int64_t w_stride, int depth, int outs,
                   bool first, float* kept) {
  int o = 0;
  for (; o + kOutTile <= outs; o += kOutTile)
    many_rows_tile<R, kOutTile>(x, x_stride, w + o * w_stride, w_stride, depth, first, kept + o * kLanes);
  for (; o < outs; ++o)
    many_rows_tile<R, 1>(x, x_stride, w + o * w_stride, w_stride, depth, first, kept + o * kLanes);
}

// Calls f(rows) with rows = R, R - 1, ... 1 as a constant: the one that `rows` names.
template <int R, class F>
inline void with_rows(int rows, const F& f) {
  if constexpr (R > 1) {
    if (rows < R) return with_rows<R - 1>(rows, f);
  }
  f(std::integral_constant<int, R>());
}

// At most kRowBlock rows and kOutBlock outputs.
template <class Weights>
void many_rows(const float* x, int64_t x_stride, const Weights& weights, int in_dim, int o_begin, int outs,
               int rows, float* y, int64_t y_stride) {
  using T = typename Weights::Element;
  alignas(64) float kept[kRowBlock * kOutBlock * kLanes];
  alignas(64) T scratch[Weights::kUnpacks ? kOutBlock * kDepth : 1];

  for (int i = 0; i < in_dim; i += kDepth) {
    const int depth = in_dim - i < kDepth ? in_dim - i : kDepth;
    const T* w = weights.tile(o_begin, outs, i, depth, scratch);
    for (int r = 0; r < rows; r += kRowTile)
      with_rows<kRowTile>(rows - r < kRowTile ? rows - r : kRowTile, [&](auto tile_rows) {
        many_rows_run<tile_rows()>(x + r * x_stride + i, x_stride, w, weights.tile_stride(depth), depth, outs,
                                   i == 0, kept + r * kOutBlock * kLanes);
      });
  }

  for (int r = 0; r < rows; ++r) {
    const float* sums = kept + r * kOutBlock * kLanes;
    float* out = y + r * y_stride + o_begin;
    int o = 0;
    for (; o + kOutTile <= outs; o += kOutTile, sums += kOutTile * kLanes)
      sum4(load(sums), load(sums + kLanes), load(sums + 2 * kLanes), load(sums + 3 * kLanes), out + o);
    for (; o < outs; ++o, sums += kLanes) out[o] = sum1(load(sums));
  }
}

// One item of work: outputs [o_begin, o_begin + outs) of rows [r_begin, r_end) of a group.
template <class Weights>
void dot_item(const DotGroup<Weights>& group, int64_t x_stride, int64_t y_stride, int in_dim, int o_begin,
              int outs, int r_begin, int r_end) {
  const int rows = r_end - r_begin;
  const float* x = group.x + r_begin * x_stride;
  float* y = group.y + r_begin * y_stride;
  if constexpr (!Weights::kUnpacks) {
    if (rows <= kRowTile) {
      with_rows<kRowTile>(rows, [&](auto tile_rows) {
        few_rows<tile_rows()>(x, x_stride, group.weights.tile(o_begin, outs, 0, in_dim, nullptr),
                              group.weights.row_size, in_dim, outs, y + o_begin, y_stride);
      });
      return;
    }
  }
  // Equal blocks of whole tiles rather than full ones and a remainder.
  const int blocks = (rows + kRowBlock - 1) / kRowBlock;
  const int block = ((rows + blocks - 1) / blocks + kRowTile - 1) / kRowTile * kRowTile;
  const auto blocks_of = [&](const auto& weights) {
    for (int o = 0; o < outs; o += kOutBlock)
      for (int r = 0; r < rows; r += block)
        many_rows(x + r * x_stride, x_stride, weights, in_dim, o_begin + o,
                  outs - o < kOutBlock ? outs - o : kOutBlock, rows - r < block ? rows - r : block,
                  y + r * y_stride, y_stride);
  };
  if (rows >= kWidenRows)
    blocks_of(for_many_rows(group.weights));
  else
    blocks_of(group.weights);
}

// All groups: `group(g)` describes group g. An item is a run of outputs, large enough to be worth a thread's
// while; with few items and many rows, the rows are split too.
template <class Weights, class F>
void dot_groups(Queue& queue, int num_groups, const F& group, int64_t x_stride, int64_t y_stride, int in_dim,
                int out_dim, int64_t weight_row_bytes) {
  int rows_max = 0;
  for (int g = 0; g < num_groups; ++g) rows_max = group(g).rows > rows_max ? group(g).rows : rows_max;
  if (rows_max == 0 || out_dim == 0) return;

  int outs = kOutBlock;
  if (rows_max <= kRowTile && weight_row_bytes > 0) {
    const int64_t worth = kItemBytes / weight_row_bytes / kOutTile * kOutTile;
    outs = int(worth < kOutTile ? kOutTile : worth > out_dim ? out_dim : worth);
  }
  const int64_t runs = (out_dim + outs - 1) / outs;
  int64_t parts = 4 * queue.threads() / (runs * num_groups) + 1;
  const int64_t parts_max = (rows_max + kRowBlock - 1) / kRowBlock;
  if (queue.threads() == 1) parts = 1;
  if (parts > parts_max) parts = parts_max;

  queue.parallel_for(num_groups * runs * parts, [&](int64_t item) {
    const auto g = group(int(item / (runs * parts)));
    const int o = int(item / parts % runs) * outs;
    const int64_t part = item % parts;
    const int r_begin = int(g.rows * part / parts), r_end = int(g.rows * (part + 1) / parts);
    if (r_begin < r_end)
      dot_item(g, x_stride, y_stride, in_dim, o, out_dim - o < outs ? out_dim - o : outs, r_begin, r_end);
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
