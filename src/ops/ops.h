// ops/ops.h: one typed function per operator: it asserts that the shapes agree and calls the backend's
// kernel. The formulas stand in kernels/<operator>/<operator>.h. The last tensor is the output.
#pragma once

#include <initializer_list>
#include <span>

#include "kernels/kernel_table.h"
#include "ops/step.h"

namespace dsa::ops {

// The tokens that the batch asks for, from the logits of its rows: for the host, and for a step that continues this one.
void sample(Step& s, const Tensor& logits);
void embedding(Step& s, const Tensor& table, Tensor y);                              // [tokens, dim]
void rms_norm(Step& s, const Tensor& x, const Tensor& weight, float eps, Tensor y);  // [rows, dim]
void layer_norm(Step& s, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps, Tensor y);
void linear(Step& s, const Tensor& x, const Tensor& weight, Tensor y);  // [rows, out_dim]
// The same on the exact route, whatever that of the step: for scores that choose experts or positions.
void exact_linear(Step& s, const Tensor& x, const Tensor& weight, Tensor y);
// Several products, each y = weight x, in one launch if rows are few.
struct Product {
  Tensor x, weight, y;
  bool exact = false;  // whatever the route of the step
};
void linears(Step& s, std::initializer_list<Product> products);
// The same of h = rms_norm(x), which every product reads.
struct NormProduct {
  Tensor weight, y;  // a null weight: no product
  bool exact = false;
};
void norm_linears(Step& s, const Tensor& x, const Tensor& norm, float eps, Tensor h,
                  std::initializer_list<NormProduct> products);
// y = addend + weight x, or weight x if there is no addend; `room` is as large as y and neither of the two.
void add_linear(Step& s, const Tensor& x, const Tensor& weight, const Tensor& addend, Tensor room, Tensor y);
// y = weight activation(gate, up); the gate may be lost.
void gated_linear(Step& s, Tensor gate, const Tensor& up, const ActivationForm& form, const Tensor& weight,
                  const Tensor& addend, Tensor room, Tensor y);
// Per-head products; `weight`, bf16 or f32, is [heads, out_dim, in_dim], or [heads, in_dim, out_dim] if transposed.
void head_linear(Step& s, const Tensor& x, const Tensor& weight, bool transposed,
                 Tensor y);  // [tokens, heads, out]
void activation(Step& s, const Tensor& gate, const Tensor& up, const ActivationForm& form, Tensor y);
void sigmoid_gate(Step& s, const Tensor& x, const Tensor& gate, Tensor y);
void add(Step& s, const Tensor& a, const Tensor& b, Tensor y);
void attn_residual(Step& s, const float* const* sources, int num_sources, const Tensor& query, float eps,
                   Tensor y);

// What the router does with its scores; see kernels/router/router.h.
struct Routing {
  bool renormalize = true;
  float scale = 1;
  int groups = 1, top_groups = 1;
};
void router(Step& s, const Tensor& logits, const Tensor& bias, const Routing& routing, Tensor expert_ids,
            Tensor expert_weights);  // [tokens, top_k]
void expert_plan(Step& s, const Tensor& expert_ids, Tensor offsets, Tensor pairs, Tensor rows);
void expert_gather(Step& s, const Tensor& x, const Tensor& pairs, Tensor y);  // [tokens * top_k, dim]
void expert_combine(Step& s, const Tensor& x, const Tensor& rows, const Tensor& expert_weights, Tensor y);

// One product of every expert that has rows: its matrices, and where its rows go, [sorted rows, out_dim].
struct ExpertProduct {
  const ExpertMatrix* matrices;  // [experts]
  Tensor y;
};
// The groups of all products at once whose matrices are of one type, in one of the two arrays of `num_groups`.
void expert_groups(Step& s, const Tensor& offsets, DType type, std::span<const ExpertProduct> products,
                   Mxfp4LinearGroup* mxfp4, ExpertLinearGroup* linear, int num_groups);
void expert_linear(Step& s, const Tensor& x, const ExpertLinearGroup* groups, int num_groups,
                   DType weight_type, int out_dim);
void mxfp4_linear(Step& s, const Tensor& x, const Mxfp4LinearGroup* groups, int num_groups, int out_dim);

// MXFP4 experts of few tokens without a plan: the two products of each pair of token and expert, [tokens * top_k, dim], and
// then y = addend + (their weighted outputs + shared). addend and shared may be null.
void expert_up(Step& s, const Tensor& x, const Tensor& expert_ids, const ExpertMatrix* gates,
               const ExpertMatrix* ups, Tensor gate, Tensor up);
void expert_down(Step& s, const Tensor& gate, const Tensor& up, const ActivationForm& form,
                 const Tensor& expert_ids, const Tensor& expert_weights, const ExpertMatrix* downs,
                 const Tensor& shared, const Tensor& addend, Tensor y);  // [tokens, width]

// Products of MXFP4 experts with rows of FP8: in one, or in two steps, see kernels/mxfp4_to_fp8 and
// kernels/fp8_expert_linear. Weights are expanded on `queue`, which may be that of the step or its side.
void mxfp4_exponents(Step& s, const uint8_t* blocks, const uint8_t* scales, int64_t rows, int in_dim,
                     int16_t* exponents, uint8_t* spreads);
void mxfp4_to_fp8(Step& s, Queue& queue, std::span<const Mxfp4ToFp8Group> groups, int in_dim, int out_dim,
                  int rows_beside);
void fp8_pack(Step& s, const Tensor& x, uint8_t* codes, float* scales);
void fp8_pack(Step& s, const Tensor& x, const Tensor& pairs, uint8_t* codes,
              float* scales);  // as expert_gather
void fp8_expert_linear(Step& s, const uint8_t* x, const float* x_scales,
                       std::span<const Fp8ExpertLinearGroup> groups, int rows, int in_dim, int out_dim,
                       int64_t y_stride, int rows_beside);
void mxfp4_expert_linear(Step& s, const uint8_t* x, const float* x_scales,
                         std::span<const Mxfp4ExpertLinearGroup> groups, int rows, int in_dim, int out_dim,
                         int64_t y_stride);

void short_conv(Step& s, const Tensor& x, const Tensor& weight, const ShortConvSequence* sequences, Tensor y);
void kda_gate(Step& s, Tensor q, Tensor k, Tensor g, Tensor beta, const Tensor& a_log, const Tensor& dt_bias,
              float lower_bound);
// One row a sequence: the step; more: the chunked form.
void kda(Step& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
         const KdaSequence* sequences, Tensor o);  // [tokens, heads, v_dim]
// All of it for one row a sequence, up to the gated norm; z and b become g and beta there.
struct KdaDecodeWeights {
  Tensor conv, a_log, dt_bias, norm;
};
void kda_decode(Step& s, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& gate,
                const KdaDecodeWeights& w, float lower_bound, float eps, const ShortConvSequence* convs,
                const KdaSequence* sequences, Tensor o);  // [tokens, heads, dim]
void gated_norm(Step& s, const Tensor& x, const Tensor& gate, const Tensor& weight, float eps, Tensor y);

// `x` is [tokens, heads, dim]: the lanes that turn, in place.
void rope(Step& s, RopeKind kind, const Tensor& frequencies, float amplitude, Tensor x);
void hadamard(Step& s, Tensor x);   // rows of the last dimension, in place
void fp8_round(Step& s, Tensor x);  // the same

void append_rows(Step& s, const Tensor& x, PagedRows cache);
// Rows [first, first + scores rows) of the step against every cached position.
void index_scores(Step& s, const Tensor& q, const Tensor& head_weights, PagedRows k, int first,
                  Tensor scores);
// The same over pools of positions; `visible` says how many of them each token sees, [tokens].
void index_scores(Step& s, const Tensor& q, const Tensor& head_weights, PagedRows k, const Tensor& visible,
                  int first, Tensor scores);
// `guesses` is [tokens], or null; see kernels/top_k/top_k.h.
void top_k(Step& s, const Tensor& scores, const Tensor& visible, int first, const Tensor& guesses,
           Tensor selected);  // [rows, top_k]
void pool_keys(Step& s, const Tensor& keys, const Tensor& gates, const Tensor& places,
               const PoolSequence* sequences, PagedRows pools, Tensor pools_visible);
void expand_pools(Step& s, const Tensor& pools, int group, bool tail, Tensor selected);
// `selected` null: every visible position.
void sparse_attention(Step& s, const Tensor& q_latent, const Tensor& q_rope, PagedRows latents,
                      const Tensor& selected, float scale, Tensor o);  // [tokens, heads, latent]

// Sinks null: none. Window 0: every visible position.
void gqa_attention(Step& s, const Tensor& q, PagedRows k, PagedRows v, const Tensor& sinks, int window,
                   float scale, Tensor o);  // [tokens, heads, dim]

void add_bias(Step& s, const Tensor& bias, Tensor y);  // [rows, dim] or [rows, parts, dim]
void add_bias(Step& s, const Tensor& bias, const Tensor& offsets,
              Tensor y);                                             // a row of `bias` for each run of rows
void head_norm(Step& s, const Tensor& weight, float eps, Tensor x);  // [tokens, heads, dim]
void softmax_router(Step& s, const Tensor& logits, Tensor expert_ids,
                    Tensor expert_weights);                                       // [tokens, top_k]
void alpha_swiglu(Step& s, const Tensor& x, float alpha, float limit, Tensor y);  // [rows, dim]

void hyper_spread(Step& s, const Tensor& y, Tensor x);  // [tokens, streams, dim]
void hyper_mix(Step& s, const Tensor& x, const Tensor& logits, const Tensor& base, const Tensor& scale,
               int iterations, float norm_eps, float eps, Tensor y, Tensor coefficients);
void hyper_add(Step& s, const Tensor& y, const Tensor& coefficients, Tensor x);  // [tokens, streams, dim]
void hyper_mean(Step& s, const Tensor& x, Tensor y);                             // [tokens, dim]

// Puts the placed rows of the step over its embeddings.
void place_rows(Step& s, Tensor y);  // [tokens, dim]

void copy(Step& s, const Tensor& x, Tensor y);  // both dense
void gelu(Step& s, GeluKind kind, const Tensor& x, Tensor y);
void gather_rows(Step& s, const Tensor& x, const Tensor& rows, Tensor y);  // [rows, dim]
// Adds to the cells of each grid their place in `table`, [rows, columns, dim].
void grid_embedding(Step& s, const Tensor& table, const Grid* grids, int num_grids,
                    Tensor x);  // [cells, dim]
void rope_2d(Step& s, Rope2dKind kind, Tensor x, const Tensor& rows, const Tensor& columns,
             const Tensor& turns);
void vision_attention(Step& s, const Tensor& q, const Tensor& k, const Tensor& v,
                      const VisionAttentionRun* runs, int num_runs, float scale,
                      Tensor o);  // [queries, heads, dim]

}  // namespace dsa::ops
