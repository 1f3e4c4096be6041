// kernels/embedding/embedding_ref.cc: one row of the table a token.
#include "kernels/embedding/embedding.h"

namespace dsa {
namespace {

template <class T>
void copy_row(const void* table, int64_t id, int dim, float* y) {
  const T* row = static_cast<const T*>(table) + id * dim;
  for (int d = 0; d < dim; ++d) y[d] = to_f32(row[d]);
}

}  // namespace

void ref::embedding(const EmbeddingArgs& a, Queue& queue) {
  DSA_ASSERT(a.table_type == DType::bf16 || a.table_type == DType::f32);
  queue.parallel_for(a.tokens, [&](int64_t t) {
    float* y = a.y + t * a.dim;
    if (a.table_type == DType::bf16) {
      copy_row<bf16>(a.table, a.ids[t], a.dim, y);
    } else {
      copy_row<float>(a.table, a.ids[t], a.dim, y);
    }
  });
}

}  // namespace dsa
