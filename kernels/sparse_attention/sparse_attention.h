// kernels/sparse_attention/sparse_attention.h: latent attention over selected positions of a paged cache.
//
//   a[t, h, p]  = scale * ( q_latent[t, h] . row(p)[0 : latent_dim] + q_rope[t, h] . row(p)[latent_dim : dim] )
//   o[t, h]     = sum over p of  softmax_p(a)[p] * row(p)[0 : latent_dim]
//
// p runs over selected[t] (-1: unused slot), or over every p < visible[t] if selected is null. A token without any
// position gives zero. f32, softmax with the maximum subtracted; the order of the sums depends on the list alone.
// With Route::fast, an implementation may round q, decoded rows and the weights of the softmax to bf16 unless the cache
// keeps f32, and count unused slots in the order of the sums.
#pragma once

#include "kernels/common/kernel.h"
#include "kernels/common/paged.h"
#include "kernels/common/route.h"

namespace dsa {

struct SparseAttentionArgs {
  const float* q_latent;       // [tokens, heads, latent_dim]  dense
  const float* q_rope;         // [tokens, heads, rope_dim]
  const int32_t* sequence_of;  // [tokens]
  const int32_t* visible;      // [tokens]
  const int32_t* selected;     // [tokens, top_k]; null: all visible positions
  PagedRows latents;           // rows of latent_dim + rope_dim; in fp8, latent_dim of them coded
  float* o;                    // [tokens, heads, latent_dim]  output, dense
  int64_t q_rope_token_stride, q_rope_head_stride;  // floats
  int tokens, heads, latent_dim, rope_dim, top_k;
  float scale;
  Route route = Route::exact;
};
DSA_DECLARE_KERNEL(sparse_attention, SparseAttentionArgs);

}  // namespace dsa
