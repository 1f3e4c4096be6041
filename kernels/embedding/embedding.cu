// kernels/embedding/embedding.cu: one block a token.
#include "kernels/common/cuda.cuh"
#include "kernels/embedding/embedding.h"

namespace dsa {
namespace {

template <class T>
void copy_rows(const EmbeddingArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    const T* row = static_cast<const T*>(a.table) + int64_t(a.ids[t]) * a.dim;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) a.y[t * a.dim + d] = to_f32(row[d]);
  });
}

}  // namespace

void cuda::embedding(const EmbeddingArgs& a, Queue& queue) {
  DSA_ASSERT(a.table_type == DType::bf16 || a.table_type == DType::f32);
  a.table_type == DType::bf16 ? copy_rows<bf16>(a, queue) : copy_rows<float>(a, queue);
}

}  // namespace dsa
