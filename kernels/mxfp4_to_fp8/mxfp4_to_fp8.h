// kernels/mxfp4_to_fp8/mxfp4_to_fp8.h: MXFP4 matrices become E4M3 matrices with one power of two for each row.
//
//   mxfp4_exponents  top           = the largest scale code of a block of row o that is not all zero; 6 if there is none
//                    exponents[o]  = top - 6
//                    spreads[o]    = top - the smallest such code
//   mxfp4_to_fp8     codes[o, i]   = e4m3( e2m1(o, i) * 2^(scales[o, i / 32] - exponents[o]) )
//                    which lies at fp8_tile_offset(out_dim, o, i); see common/fp8_tiles.h
//
// An E2M1 magnitude is m * 2^q with m 1 or 3 and q from -1 to 2. E4M3 holds it times 2^s exactly if s lies in -8 .. 6:
// with spreads[o] <= kMxfp4SpreadMax, codes[o, i] * 2^(exponents[o] - 127) is W[o, i] bit for bit. In a row of larger
// spread the smallest values are rounded, to nearest even, and lose at most 2^-18 of what the largest block can hold.
// -0 stays -0. Scale code 255 is NaN; a loader has refused it.
#pragma once

#include "kernels/common/fp8_tiles.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

constexpr int kMxfp4SpreadMax = 14;

struct Mxfp4ExponentsArgs {
  const uint8_t* blocks;  // [rows, in_dim / 2]
  const uint8_t* scales;  // [rows, in_dim / 32]
  int16_t* exponents;     // [rows]  output
  uint8_t* spreads;       // [rows]  output
  int64_t rows;
  int in_dim;  // a multiple of 32
};
DSA_DECLARE_KERNEL(mxfp4_exponents, Mxfp4ExponentsArgs);

struct Mxfp4ToFp8Group {
  const uint8_t* blocks;           // [out_dim, in_dim / 2]
  const uint8_t* scales;           // [out_dim, in_dim / 32]
  const int16_t* exponents;        // [out_dim]
  uint8_t* codes;                  // [fp8_tile_bytes(out_dim, in_dim)]  output
  const int32_t* range = nullptr;  // [2]  the group is left out if both are equal; null: it is converted
};

struct Mxfp4ToFp8Args {
  const Mxfp4ToFp8Group* groups;  // [num_groups]
  int num_groups, in_dim, out_dim;
  // Rows of an expert, on average, in the fp8_expert_linear that runs beside it and shares the device; 0: nothing does.
  int rows_beside = 0;
};
DSA_DECLARE_KERNEL(mxfp4_to_fp8, Mxfp4ToFp8Args);

}  // namespace dsa
