// kernels/mxfp4_linear/mxfp4_linear.h: linear for groups of rows whose weights are MXFP4, read as they lie in the
// checkpoint.
//
//   group.y[r, o] = sum over i of  W[o, i] * x[group.row_begin + r, i]             for each group, r < rows
//   W[o, i]       = e2m1(blocks[o, i / 2], low nibble for even i) * 2^(scales[o, i / 32] - 127)
//
// exact  Activations stay f32, every weight is exact, sums are f32.
// fast   Each block of 32 activations is rounded to a magnitude of 8 bits and a sign, x ~ q * s with s = max|x| / 255,
//        q to nearest even, and multiplied with 2 * e2m1, an exact int8: |sum over a block| <= 32 * 255 * 12 = 97,920.
//        Block sums are scaled by s * 2^(scale - 128) and added in f32. The rounding of x is the only loss. A block
//        with s below kMxfp4ScaleMin counts as zero; a block that holds NaN or infinity gives NaN.
//        On GPUs stretches of 256 activations become integers of 14 bits and a sign instead, with a power of two.
// On both routes the order of a sum depends on in_dim alone: a row alone equals the same row in a batch.
//
// On GPUs the rows of a group may become known only when the product starts: then `range` says where to read them,
// row_begin and rows do not count, and y is that of row 0 of x. Elsewhere range is null.
//
// Scale code 0 is 2^-127 and 255 is NaN for its block (a loader refuses it); in_dim is a multiple of 32.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"
#include "kernels/common/route.h"

namespace dsa {

constexpr int kMxfp4ActivationMax = 255;
constexpr float kMxfp4ScaleMin = 0x1p-125f;  // half of it is still a normal number

struct Mxfp4LinearGroup {
  const uint8_t* blocks;           // [out_dim, in_dim / 2]
  const uint8_t* scales;           // [out_dim, in_dim / 32]
  int row_begin, rows;             // in x; rows may be 0
  float* y;                        // [rows, out_dim]  output, rows y_stride apart
  const int32_t* range = nullptr;  // [2]  first row and the one behind the last

  // With the rows that the range says.
  DSA_HD Mxfp4LinearGroup with_rows(int64_t y_stride) const {
    Mxfp4LinearGroup g = *this;
    if (range) g.row_begin = range[0], g.rows = range[1] - range[0], g.y = y + range[0] * y_stride;
    return g;
  }
};

struct Mxfp4LinearArgs {
  const float* x;                  // [rows, in_dim]
  const Mxfp4LinearGroup* groups;  // [num_groups]; groups may share rows of x
  int num_groups;
  void* workspace;  // mxfp4_linear_workspace_bytes(rows, in_dim), 64-byte aligned; unused when exact
  int64_t x_stride, y_stride;  // floats from row to row
  int rows, in_dim, out_dim;
  Route route;
  int rows_max = 0;  // no group has more rows; 0: unknown
};
// Room for the rounded activations of `rows` rows: for each block their magnitudes, masks of their signs, their scale
// and a sum; up to three blocks and a line of 64 bytes more than a row has.
inline size_t mxfp4_linear_workspace_bytes(int64_t rows, int64_t in_dim) {
  const size_t blocks = size_t(in_dim / kMxfp4Block) + 3;
  return size_t(rows) * (blocks * (2 * kMxfp4Block + sizeof(float) + sizeof(int32_t)) + 64) + 256;
}
DSA_DECLARE_KERNEL(mxfp4_linear, Mxfp4LinearArgs);

}  // namespace dsa
