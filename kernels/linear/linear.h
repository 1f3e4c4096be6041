// kernels/linear/linear.h: the product of rows with a weight matrix.
//
//   y[r, o] = sum over i of  weight[o, i] * x[r, i]
//
// An FP8 weight is e4m3(code[o, i]) * weight_scales[o / 128, i / 128]; NaN codes give NaN.
//
// exact  Activations f32, weights bf16, f32 or FP8, sums f32.
// fast   With bf16 weights, both factors are rounded to nearest integers, ties to even. x ~ q * s in blocks of
//        kLinearBlock columns, s = max|x| / 16383. weight ~ p * t in runs of kLinearRun columns, t = 2^(e - 11) where
//        2^e <= max|weight| < 2^(e + 1): weights of 2^(e - 4) and more keep all their bits. Sums of a few products are
//        exact integers, scaled by s * t and added in f32. |error of y| <= sum over i of max|x| / 32766 * |weight[o, i]|
//        + 2^-12 * max|weight| * (|x[r, i]| + max|x| / 32766), besides that of the sums. A block with s below
//        kLinearScaleMin and a run with e below -115 count as zero; one that holds NaN or infinity gives NaN. Other
//        weights have one route, the exact one.
// fast, on GPUs   With kLinearManyRows rows and more, activations are cut into two pieces in bf16, which keep the upper 16
//        bits of their fraction, and with more than kLinearPiecesRows rounded to one, nearest, ties to even, for bf16
//        weights where in_dim is a multiple of 8, and for FP8 weights where it is one of 16; these become code times scale
//        in bf16, rounded alike. All else is exact.
// The order of a sum depends on in_dim alone, never on the number of rows: a row computed alone equals the same row in
// a batch, bit for bit. Only where GPUs round does it depend on the whole shape.
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr int kLinearBlock = 512, kLinearRun = 2048;  // columns
constexpr float kLinearScaleMin = 0x1p-100f;
constexpr int kLinearManyRows = 9, kLinearPiecesRows = 512;

struct LinearArgs {
  const float* x;              // [rows, in_dim]
  const void* weight;          // [out_dim, in_dim]
  DType weight_type;           // bf16, f32 or f8_e4m3
  float* y;                    // [rows, out_dim]  output
  int64_t x_stride, y_stride;  // floats from row to row
  int rows, in_dim, out_dim;
  const float* weight_scales = nullptr;  // [ceil(out_dim / 128), ceil(in_dim / 128)]  of f8_e4m3
  Route route = Route::exact;
  void* workspace = nullptr;  // linear_workspace_bytes(rows, in_dim), 64-byte aligned; unused when exact
};
// Room for the rounded activations of `rows` rows.
inline size_t linear_workspace_bytes(int64_t rows, int64_t in_dim) {
  return size_t(rows) * size_t(in_dim + 64) * sizeof(float);
}
DSA_DECLARE_KERNEL(linear, LinearArgs);

}  // namespace dsa
