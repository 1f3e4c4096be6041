// kernels/short_conv/short_conv.h: causal depthwise convolution over a few tokens, then SiLU.
//
//   y[t, c] = silu( sum over j < width of  weight[c, j] * u[t - (width - 1) + j, c] )
//
// u is the sequence of inputs: x where the token is in this step, the sequence's state before it, zero before the
// start. Tap width - 1 multiplies the current token. The next state is the last width - 1 inputs, raw. f32.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct ShortConvSequence {
  int row_begin, rows;  // of x
  const float* state;   // [width - 1, channels]  oldest first
  float* next_state;    // [width - 1, channels]  output; may not be state
};

struct ShortConvArgs {
  const float* x;                      // [all rows, channels]
  const float* weight;                 // [channels, width]
  float* y;                            // [all rows, channels]  output; not x
  const ShortConvSequence* sequences;  // [num_sequences]
  int64_t x_stride, y_stride;          // floats from row to row
  int num_sequences, channels, width;  // width <= 8
};
DSA_DECLARE_KERNEL(short_conv, ShortConvArgs);

}  // namespace dsa
