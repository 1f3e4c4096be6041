// kernels/head_linear/head_linear.h: one small product per head, such as the absorbed key and value projections.
//
//   y[t, h, o] = sum over i of  W(h, o, i) * x[t, h, i]
//   W(h, o, i) = weight[h * weight_head_stride + o * in_dim + i]                     plain
//              = weight[h * weight_head_stride + i * out_dim + o]                    transposed
//
// exact  Activations f32, weights bf16 or f32, sums f32, in an order that does not depend on the number of tokens.
// fast   The same, except on GPUs with kHeadLinearManyTokens tokens and more, where in_dim is a multiple of 8 and strides are
//        multiples of 8: activations are cut or rounded as linear.h says, f32 weights rounded to bf16, and the order of the
//        sums depends on the whole shape.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr int kHeadLinearManyTokens = 64;

struct HeadLinearArgs {
  const float* x;      // [tokens, heads, in_dim]
  const void* weight;  // per head [out_dim, in_dim], or [in_dim, out_dim] if transposed
  DType weight_type;   // bf16 or f32
  float* y;            // [tokens, heads, out_dim]  output
  int64_t x_token_stride, x_head_stride, y_token_stride, y_head_stride;  // floats
  int64_t weight_head_stride;                                            // elements
  int tokens, heads, in_dim, out_dim;
  bool transposed;
  Route route = Route::exact;
};
DSA_DECLARE_KERNEL(head_linear, HeadLinearArgs);

}  // namespace dsa
