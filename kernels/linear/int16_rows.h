// kernels/linear/int16_rows.h: rows times bf16 weight rows, y[r, o] = w[o] . x[r], both rounded to integers as
// linear.h says. The engine of the fast route of linear.
//
// Order of a sum: within a run of kLinearRun columns each lane adds float(integer sum) * scales for kFlush columns at a
// time, with fma; then sum4 adds the lanes, and the sums of the runs are added one after the other. Integer sums are
// exact. Both paths below keep this order.
//
// Few rows   One weight row after the other streams past up to kRowTile rows of x: while the integers of one run are
//            made and multiplied, the scale of the next is found.
// Many rows  A run of kOutBlock weight rows is turned into integers once and stays in L2; four of them at a time pass
//            over a tile of x in L1.
#pragma once

#include "kernels/common/dot_rows.h"
#include "kernels/linear/linear.h"

namespace dsa {
namespace DSA_ISA {

using I16 = hn::Repartition<int16_t, F32>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VecI16 = hn::Vec<I16>;
using VecI32 = hn::Vec<I32>;

constexpr int kPairColumns = 2 * kLanes;        // of a vector
constexpr int kFlush = 16 * kPairColumns;       // columns: a lane adds 32 products of 14 and 12 bits
constexpr int kInt16Max = 16383;                // of x
constexpr int kWeightBits = 12;                 // of w, besides the sign
constexpr int kWeightExponentMin = 12;          // biased: the scale and its inverse are normal numbers
constexpr int kPartRows = 72;                   // rows that are worth an item of their own
constexpr int64_t kInt16BytesAhead = 16 << 10;  // enough to hide the latency of memory

inline int64_t whole_vectors(int64_t n) { return (n + kPairColumns - 1) / kPairColumns * kPairColumns; }

inline VecI32 add_pairs(VecI16 x, VecI16 w, VecI32 sum) {
#if defined(__AVX512VNNI__)
  // The intrinsic; but GCC 12 moves its sums to another register first, and spills them.
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
  return sum;
#else
  VecI32 more = hn::Zero(I32());
  sum = hn::ReorderWidenMulAccumulate(I32(), x, w, sum, more);
  return hn::Add(sum, more);
#endif
}

// The rounded rows of x, in the workspace.
struct Int16Rows {
  int16_t* values;  // [rows, stride]  zeros behind the last column up to whole vectors
  float* scales;    // [rows, blocks]
  int64_t stride;   // a vector more than needed: rows of 4 KiB and more would meet in the same lines of L1
  int blocks;

  Int16Rows(void* workspace, int rows, int columns)
      : values(static_cast<int16_t*>(workspace)),
        stride(whole_vectors(columns) + kPairColumns),
        blocks((columns + kLinearBlock - 1) / kLinearBlock) {
    scales = reinterpret_cast<float*>(values + rows * stride);
  }

  void round(int64_t r, const float* x, int columns) const {
    for (int b = 0; b < blocks; ++b) {
      const int begin = b * kLinearBlock,
                end = columns < begin + kLinearBlock ? columns : begin + kLinearBlock;
      VecI32 largest_bits = hn::Zero(I32());  // |x| orders like its bits, NaN above all
      for_each_vector(begin, end, [&](int64_t i, size_t n) {
        largest_bits = hn::Max(largest_bits, hn::BitCast(I32(), hn::Abs(load(x + i, n))));
      });
      const float largest = bits_to_f32(uint32_t(hn::GetLane(hn::MaxOfLanes(I32(), largest_bits))));
      const float s = largest / kInt16Max;
      const bool usable = s >= kLinearScaleMin && largest <= 3.402823466e38f;
      scales[r * blocks + b] = usable ? s : s < kLinearScaleMin ? 0 : bits_to_f32(0x7fc00000);

      int16_t* out = values + r * stride;
      const hn::Rebind<int16_t, F32> half;
      for_each_vector(begin, end, [&](int64_t i, size_t n) {
        const Vec value = usable ? load(x + i, n) : zero();
        const VecI32 q = hn::NearestInt(hn::Div(value, set(usable ? s : 1.f)));
        hn::StoreU(hn::DemoteTo(half, q), half, out + i);
      });
      for (int64_t i = begin + (end - begin + kLanes - 1) / kLanes * kLanes; i < whole_vectors(end); ++i)
        out[i] = 0;
    }
  }
};

inline VecI16 load_columns(const bf16* p) { return hn::LoadU(I16(), reinterpret_cast<const int16_t*>(p)); }
// The first n columns, zeros behind them.
inline VecI16 load_columns(const bf16* p, int n) {
  if (n >= kPairColumns) return load_columns(p);
  bf16 columns[kPairColumns] = {};
  memcpy(columns, p, size_t(n) * sizeof(bf16));
  return load_columns(columns);
}

// The scale of one block of a weight row.
struct WeightScale {
  float inverse, scale;

  // `largest`: bits of |w|.
  explicit WeightScale(int largest) {
    const int exponent = largest >> 7;
    const bool usable = exponent >= kWeightExponentMin && exponent < 255;
    inverse = usable ? bits_to_f32(uint32_t(253 + kWeightBits - exponent) << 23) : 0;
    scale = usable            ? bits_to_f32(uint32_t(exponent + 1 - kWeightBits) << 23)
            : exponent == 255 ? bits_to_f32(0x7fc00000)
                              : 0;
  }
};

// w / scale to the nearest integers: the low half of w / scale + 1.5 * 2^23 holds them.
inline VecI16 to_integers(VecI16 w, Vec inverse) {
  const U32 d;
  const auto bits = hn::BitCast(d, w);
  const Vec even = hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
  const Vec odd = hn::BitCast(F32(), hn::And(bits, hn::Set(d, 0xffff0000u)));
  const Vec magic = set(0x1.8p23f);
  return hn::OddEven(hn::BitCast(I16(), hn::ShiftLeft<16>(hn::BitCast(d, fma(odd, inverse, magic)))),
                     hn::BitCast(I16(), fma(even, inverse, magic)));
}

inline VecI16 larger(VecI16 largest, VecI16 w) {
  return hn::Max(largest, hn::And(w, hn::Set(I16(), 0x7fff)));
}
inline int largest_of(VecI16 v) {
  const VecI32 pairs = hn::BitCast(I32(), v);
  return hn::GetLane(hn::MaxOfLanes(
      I32(), hn::Max(hn::ShiftRight<16>(pairs), hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs)))));
}

struct Int16Product {
  Int16Rows x;
  const bf16* weight;  // [out_dim, in_dim]
  float* y;            // [rows, out_dim]
  int64_t y_stride;
  int rows, in_dim, out_dim;
};

// Finds the scale of one run of a weight row, a vector of columns at a time.
class ScaleFinder {
 public:
  ScaleFinder(const bf16* w, int columns) : w_(w), left_(columns) {}
  void step() {
    if (left_ < kPairColumns) return;
    prefetch_l2(reinterpret_cast<const char*>(w_) + kInt16BytesAhead);
    largest_ = larger(largest_, load_columns(w_));
    w_ += kPairColumns, left_ -= kPairColumns;
  }
  WeightScale finish() {
    while (left_ >= kPairColumns) step();
    if (left_ > 0) largest_ = larger(largest_, load_columns(w_, left_));
    return WeightScale(largest_of(largest_));
  }

 private:
  const bf16* w_;
  int left_;
  VecI16 largest_ = hn::Zero(I16());
};

// sums[r] += one run of columns of a weight row times row r of x; the scale of the next run is found on the way.
template <int R>
inline void add_run(const bf16* w, int columns, const WeightScale& weight, ScaleFinder& next,
                    const int16_t* x, int64_t x_stride, const float* x_scales, int blocks, Vec (&sums)[R]) {
  const Vec inverse = set(weight.inverse);
  for (int i = 0; i < columns;) {
    const float* scales = x_scales + i / kLinearBlock;
    VecI32 integers[R], others[R];  // two chains: one would wait for itself
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) integers[r] = others[r] = hn::Zero(I32());
    const int end = columns < i + kFlush ? columns : i + kFlush;
    for (; i + 2 * kPairColumns <= end; i += 2 * kPairColumns) {
      next.step();
      next.step();
      const VecI16 p = to_integers(load_columns(w + i), inverse);
      const VecI16 q = to_integers(load_columns(w + i + kPairColumns), inverse);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        integers[r] = add_pairs(hn::LoadU(I16(), x + r * x_stride + i), p, integers[r]);
        others[r] = add_pairs(hn::LoadU(I16(), x + r * x_stride + i + kPairColumns), q, others[r]);
      }
    }
    for (; i < end; i += kPairColumns) {
      const VecI16 p = to_integers(load_columns(w + i, columns - i), inverse);
      for (int r = 0; r < R; ++r)
        integers[r] = add_pairs(hn::LoadU(I16(), x + r * x_stride + i), p, integers[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r] = fma(hn::ConvertTo(F32(), hn::Add(integers[r], others[r])),
                    set(scales[r * blocks] * weight.scale), sums[r]);
  }
}

// Outputs [o_begin, o_end) of R rows.
template <int R>
void few_int16_rows(const Int16Product& a, int o_begin, int o_end) {
  const auto columns_from = [&](int begin) {
    return a.in_dim - begin < kLinearRun ? a.in_dim - begin : kLinearRun;
  };
  const bf16* w = a.weight + int64_t(o_begin) * a.in_dim;
  WeightScale weight = ScaleFinder(w, columns_from(0)).finish();
  for (int o = o_begin; o < o_end; ++o)
    for (int begin = 0; begin < a.in_dim; begin += kLinearRun) {
      const int columns = columns_from(begin);
      const bool row_ends = begin + columns == a.in_dim, last = row_ends && o + 1 == o_end;
      ScaleFinder next(w + columns, last ? 0 : columns_from(row_ends ? 0 : begin + columns));
      Vec sums[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r] = zero();
      add_run<R>(w, columns, weight, next, a.x.values + begin, a.x.stride, a.x.scales + begin / kLinearBlock,
                 a.x.blocks, sums);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        float& y = a.y[r * a.y_stride + o];
        y = begin == 0 ? sum1(sums[r]) : y + sum1(sums[r]);
      }
      weight = next.finish();
      w += columns;
    }
}

// One run of kOutBlock weight rows as integers.
struct IntegerWeights {
  alignas(64) int16_t values[kOutBlock * kLinearRun];  // [outs / 4, vectors, 4, columns of a vector]
  float scales[kOutBlock];

  void set_row(const bf16* w, int o, int columns) {
    int16_t* to = values + o / kOutTile * kOutTile * whole_vectors(columns) + o % kOutTile * kPairColumns;
    const WeightScale weight = ScaleFinder(w, columns).finish();
    const Vec inverse = dsa::DSA_ISA::set(weight.inverse);
    scales[o] = weight.scale;
    for (int i = 0; i < columns; i += kPairColumns, to += kOutTile * kPairColumns)
      hn::Store(to_integers(load_columns(w + i, columns - i), inverse), I16(), to);
  }
};

// kept[r][o] += the products of at most kFlush columns, [vectors, 4, columns of a vector] of w. Not inlined: among the
// loops around it compilers run out of registers.
template <int R>
[[gnu::noinline]] void integer_tile(const int16_t* x, int64_t x_stride, const int16_t* w, int depth,
                                    const float* x_scales, int64_t x_scale_stride, const float* w_scales,
                                    float (&kept)[R][kOutTile][kLanes]) {
  VecI32 integers[R][kOutTile];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int o = 0; o < kOutTile; ++o) integers[r][o] = hn::Zero(I32());
  for (int i = 0; i < depth; i += kPairColumns, w += kOutTile * kPairColumns) {
    VecI16 columns[kOutTile];
#pragma GCC unroll 8
    for (int o = 0; o < kOutTile; ++o) columns[o] = hn::Load(I16(), w + o * kPairColumns);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VecI16 value = hn::LoadU(I16(), x + r * x_stride + i);
#pragma GCC unroll 8
      for (int o = 0; o < kOutTile; ++o) integers[r][o] = add_pairs(value, columns[o], integers[r][o]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const float scale = x_scales[r * x_scale_stride];
#pragma GCC unroll 8
    for (int o = 0; o < kOutTile; ++o)
      store(fma(hn::ConvertTo(F32(), integers[r][o]), set(scale * w_scales[o]), load(kept[r][o])),
            kept[r][o]);
  }
}

// One run of kOutBlock outputs of R rows, of which the first `outs` are stored. kFlush columns of x stay in L1 while the
// weights pass over them.
template <int R>
void many_int16_tile(const Int16Rows& x, int64_t row, int begin, int depth, const IntegerWeights& w, int outs,
                     float* y, int64_t y_stride) {
  alignas(64) float kept[kOutBlock / kOutTile][R][kOutTile][kLanes];
  memset(kept, 0, sizeof(kept[0]) * size_t((outs + kOutTile - 1) / kOutTile));
  for (int i = 0; i < depth; i += kFlush) {
    const int count = depth - i < kFlush ? depth - i : kFlush;
    for (int o = 0; o < outs; o += kOutTile)
      integer_tile<R>(x.values + row * x.stride + begin + i, x.stride, w.values + o * depth + kOutTile * i,
                      count, x.scales + row * x.blocks + (begin + i) / kLinearBlock, x.blocks, w.scales + o,
                      kept[o / kOutTile]);
  }
  for (int o = 0; o < outs; o += kOutTile)
    for (int r = 0; r < R; ++r) {
      const auto& sums = kept[o / kOutTile][r];
      float added[kOutTile];
      sum4(load(sums[0]), load(sums[1]), load(sums[2]), load(sums[3]), added);
      for (int j = 0; j < kOutTile && o + j < outs; ++j) {
        float& out = y[r * y_stride + o + j];
        out = begin == 0 ? added[j] : out + added[j];
      }
    }
}

// At most kOutBlock outputs of rows [r_begin, r_end).
inline void many_int16_rows(const Int16Product& a, int o_begin, int outs, int r_begin, int r_end) {
  IntegerWeights w;
  for (int begin = 0; begin < a.in_dim; begin += kLinearRun) {
    const int columns = a.in_dim - begin < kLinearRun ? a.in_dim - begin : kLinearRun;
    for (int o = 0; o < outs; ++o) w.set_row(a.weight + int64_t(o_begin + o) * a.in_dim + begin, o, columns);
    const int depth = int(whole_vectors(columns));
    for (int r = r_begin; r < r_end; r += kRowTile)
      with_rows<kRowTile>(r_end - r < kRowTile ? r_end - r : kRowTile, [&](auto rows) {
        many_int16_tile<rows()>(a.x, r, begin, depth, w, outs, a.y + r * a.y_stride + o_begin, a.y_stride);
      });
  }
}

inline void int16_rows(const Int16Product& a, Queue& queue) {
  if (a.rows == 0 || a.out_dim == 0) return;
  const bool few = a.rows <= kRowTile;
  int outs = kOutBlock;
  if (few) {
    const int64_t worth = kItemBytes / (a.in_dim * int64_t(sizeof(bf16)));
    outs = int(worth < 1 ? 1 : worth > a.out_dim ? a.out_dim : worth);
  }
  // With few items and many rows, the rows are split too.
  const int64_t runs = (a.out_dim + outs - 1) / outs;
  int64_t parts = queue.threads() == 1 ? 1 : 4 * queue.threads() / runs + 1;
  const int64_t parts_max = (a.rows + kPartRows - 1) / kPartRows;
  if (parts > parts_max) parts = parts_max;

  queue.parallel_for(runs * parts, [&](int64_t item) {
    const int o = int(item / parts) * outs, o_end = a.out_dim < o + outs ? a.out_dim : o + outs;
    const int r_begin = int(a.rows * (item % parts) / parts),
              r_end = int(a.rows * (item % parts + 1) / parts);
    if (few)
      with_rows<kRowTile>(a.rows, [&](auto rows) { few_int16_rows<rows()>(a, o, o_end); });
    else
      many_int16_rows(a, o, o_end - o, r_begin, r_end);
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
