// kernels/linears/linears.h: several products of few rows in one launch, with what stands before and behind them.
//
//   y_i[r, o] = addend_i[r, o] + sum over j of  weight_i[o, j] * in_i[r, j]           addend null: zero
//   in_i      = x_i                                                                   as it is
//             = h = rms_norm(x, norm, eps)                                            norm: all products have the same x
//             = activation(x_i, up, form)                                             up: there is one product
//
// Weights and precision as in linear on the exact route; a row computed alone equals the same row in a batch, bit for bit,
// and the result of the operators one after the other. y_i may be addend_i; otherwise no output is an input.
#pragma once

#include "base/tensor.h"
#include "kernels/activation/activation.h"
#include "kernels/common/kernel.h"

namespace dsa {

constexpr int kLinearsRowsMax = 8;

struct LinearsArgs {
  static constexpr int kMax = 8;
  struct Product {
    const float* x;              // [rows, in_dim]
    const void* weight;          // [out_dim, in_dim]
    DType weight_type;           // bf16, f32 or f8_e4m3
    float* y;                    // [rows, out_dim]  output
    int64_t x_stride, y_stride;  // floats from row to row
    int in_dim, out_dim;
    const float* weight_scales = nullptr;  // [ceil(out_dim / 128), ceil(in_dim / 128)]  of f8_e4m3
    const float* addend = nullptr;         // [rows, out_dim]
    int64_t addend_stride = 0;
  };
  Product products[kMax];
  int num_products, rows;       // rows <= kLinearsRowsMax
  const float* norm = nullptr;  // [in_dim]
  float* h = nullptr;           // [rows, in_dim]  output if there is a norm
  float eps = 0;
  const float* up = nullptr;  // [rows, in_dim], rows as far apart as those of x
  ActivationForm form = {};
};
DSA_DECLARE_KERNEL(linears, LinearsArgs);

}  // namespace dsa
