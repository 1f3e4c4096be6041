// kernels/add/add.h: y[i] = a[i] + b[i], f32. y may be a or b.
#pragma once

#include "kernels/common/kernel.h"

namespace dsa {

struct AddArgs {
  const float* a;  // [count]
  const float* b;  // [count]
  float* y;        // [count]  output
  int64_t count;
};
DSA_DECLARE_KERNEL(add, AddArgs);

}  // namespace dsa
