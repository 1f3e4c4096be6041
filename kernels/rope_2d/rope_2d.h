// kernels/rope_2d/rope_2d.h: rotary embedding on a grid, in place.
//
//   pairs    pair j of a head is ( x[2 j], x[2 j + 1] ); with i = j / 2 it turns by
//            angle = columns[t] * theta^(-4 i / dim)   j even
//                    rows[t]    * theta^(-4 i / dim)   j odd
//   halves   pair j of a head is ( x[j], x[j + dim / 2] ); it turns by
//            angle = rows[t]    * theta^(-4 j / dim)               j < dim / 4
//                    columns[t] * theta^(-4 (j - dim / 4) / dim)   j >= dim / 4
//   (x, y) -> ( x cos(angle) - y sin(angle), x sin(angle) + y cos(angle) )
//
// f32; cosines and sines come from a table, so that their f64 is paid once.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

constexpr int kRope2dDimMax = 512;

enum class Rope2dKind { pairs, halves };

struct Rope2dArgs {
  float* x;                // [tokens, heads, dim]
  const int32_t* rows;     // [tokens]  each in [0, side)
  const int32_t* columns;  // [tokens]  the same
  const float* turns;      // [side, 2, dim / 4]  cosines, then sines of position * theta^(-4 i / dim)
  int64_t token_stride, head_stride;  // floats
  int tokens, heads, dim;             // dim is a multiple of 4, at most kRope2dDimMax
  Rope2dKind kind = Rope2dKind::pairs;

  const float* turns_of(int32_t position) const { return turns + int64_t(position) * (dim / 2); }
};
DSA_DECLARE_KERNEL(rope_2d, Rope2dArgs);

// Fills Rope2dArgs::turns.
void fill_rope_2d_turns(float* turns, int side, int dim, double theta);

}  // namespace dsa
