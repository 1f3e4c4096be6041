// kernels/gelu/gelu.h: the ungated activation of the vision tower and of its projector.
//
//   exact:    y = x * Phi(x) = x / 2 * ( 1 + erf( x / sqrt 2 ) )
//   tanh:     y = x / 2 * ( 1 + tanh( sqrt(2 / pi) * (x + 0.044715 x^3) ) )
//
// f32. y may be x. -infinity gives NaN, as 0 * infinity does.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

enum class GeluKind { exact, tanh };

struct GeluArgs {
  const float* x;  // [count]
  float* y;        // [count]  output
  int64_t count;
  GeluKind kind;
};
DSA_DECLARE_KERNEL(gelu, GeluArgs);

}  // namespace dsa
