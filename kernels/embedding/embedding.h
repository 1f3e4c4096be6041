// kernels/embedding/embedding.h: the input vector of each token.
//
//   y[t, d] = table[ids[t], d]
#pragma once

#include "base/tensor.h"
#include "kernels/common/kernel.h"
#include "kernels/common/numbers.h"

namespace dsa {

struct EmbeddingArgs {
  const void* table;   // [vocab, dim]
  DType table_type;    // bf16 or f32
  const int32_t* ids;  // [tokens]  each in [0, vocab)
  float* y;            // [tokens, dim]  output
  int tokens, dim;
};
DSA_DECLARE_KERNEL(embedding, EmbeddingArgs);

}  // namespace dsa
