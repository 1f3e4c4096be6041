#include "ops/ops.h"

#include <algorithm>

namespace dsa::ops {
namespace {

[[maybe_unused]] bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rank == b.rank && std::equal(a.dim, a.dim + a.rank, b.dim);
}

int dim(const Tensor& t, int i) { return int(t.dim[i]); }

}  // namespace

void embedding(Step& s, const Tensor& table, Tensor y) {
  DSA_ASSERT(y.dim[0] == s.tokens() && y.dim[1] == table.dim[1] && y.is_dense());
  const EmbeddingArgs args{table.data, table.dtype, s.view().token_ids, y.f32(), s.tokens(), dim(y, 1)};
  s.kernels().embedding(args, s.queue());
}

void rms_norm(Step& s, const Tensor& x, const Tensor& weight, float eps, Tensor y) {
  DSA_ASSERT(x.rank == 2 && same_shape(x, y) && weight.dim[0] == x.dim[1]);
  const RmsNormArgs args{x.f32(), weight.f32(), y.f32(), x.stride[0], y.stride[0], x.dim[0], dim(x, 1), eps};
  s.kernels().rms_norm(args, s.queue());
}

void layer_norm(Step& s, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps, Tensor y) {
  DSA_ASSERT(x.rank == 2 && same_shape(x, y) && weight.dim[0] == x.dim[1]);
  const LayerNormArgs args{x.f32(),  weight.f32(), bias.is_null() ? nullptr : bias.f32(),
                           y.f32(),  x.stride[0],  y.stride[0],
                           x.dim[0], dim(x, 1),    eps};
  s.kernels().layer_norm(args, s.queue());
}

namespace {

void linear(Step& s, Route route, const Tensor& x, const Tensor& weight, Tensor y) {
  DSA_ASSERT(x.dim[0] == y.dim[0] && x.dim[1] == weight.dim[1] && y.dim[1] == weight.dim[0] &&
             weight.is_dense());
  DSA_ASSERT(route == Route::exact || linear_workspace_bytes(x.dim[0], x.dim[1]) <= s.workspace().bytes);
  const LinearArgs args{.x = x.f32(),
                        .weight = weight.data,
                        .weight_type = weight.dtype,
                        .y = y.f32(),
                        .x_stride = x.stride[0],
                        .y_stride = y.stride[0],
                        .rows = dim(x, 0),
                        .in_dim = dim(weight, 1),
                        .out_dim = dim(weight, 0),
                        .weight_scales = weight.block_scales,
                        .route = route,
                        .workspace = s.workspace().data};
  s.kernels().linear(args, s.queue());
}

}  // namespace

void linear(Step& s, const Tensor& x, const Tensor& weight, Tensor y) { linear(s, s.route(), x, weight, y); }

void exact_linear(Step& s, const Tensor& x, const Tensor& weight, Tensor y) {
  linear(s, Route::exact, x, weight, y);
}

namespace {

void put_product(const Tensor& x, const Tensor& weight, const Tensor& addend, const Tensor& y,
                 LinearsArgs& args) {
  DSA_ASSERT(args.num_products < LinearsArgs::kMax && x.dim[0] == args.rows && x.dim[0] == y.dim[0] &&
             x.dim[1] == weight.dim[1] && y.dim[1] == weight.dim[0] && weight.is_dense());
  DSA_ASSERT(addend.is_null() || same_shape(addend, y));
  args.products[args.num_products++] = {x.f32(),
                                        weight.data,
                                        weight.dtype,
                                        y.f32(),
                                        x.stride[0],
                                        y.stride[0],
                                        dim(weight, 1),
                                        dim(weight, 0),
                                        weight.block_scales,
                                        addend.is_null() ? nullptr : addend.f32(),
                                        addend.is_null() ? 0 : addend.stride[0]};
}
LinearsArgs linears_of(const Tensor& x) {
  LinearsArgs args = {};
  args.rows = dim(x, 0);
  return args;
}

}  // namespace

void linears(Step& s, std::initializer_list<Product> products) {
  const Tensor& first = products.begin()->x;
  if (!s.fuses(first.dim[0])) {
    for (const Product& p : products) linear(s, p.exact ? Route::exact : s.route(), p.x, p.weight, p.y);
    return;
  }
  LinearsArgs args = linears_of(first);
  for (const Product& p : products) put_product(p.x, p.weight, {}, p.y, args);
  s.kernels().linears(args, s.queue());
}

void norm_linears(Step& s, const Tensor& x, const Tensor& norm, float eps, Tensor h,
                  std::initializer_list<NormProduct> products) {
  if (!s.fuses(x.dim[0])) {
    rms_norm(s, x, norm, eps, h);
    for (const NormProduct& p : products)
      if (!p.weight.is_null()) linear(s, p.exact ? Route::exact : s.route(), h, p.weight, p.y);
    return;
  }
  DSA_ASSERT(same_shape(x, h) && h.is_dense() && norm.dim[0] == x.dim[1]);
  LinearsArgs args = linears_of(x);
  args.norm = norm.f32(), args.h = h.f32(), args.eps = eps;
  for (const NormProduct& p : products)
    if (!p.weight.is_null()) put_product(x, p.weight, {}, p.y, args);
  s.kernels().linears(args, s.queue());
}

void add_linear(Step& s, const Tensor& x, const Tensor& weight, const Tensor& addend, Tensor room, Tensor y) {
  if (!s.fuses(x.dim[0])) {
    linear(s, x, weight, addend.is_null() ? y : room);
    if (!addend.is_null()) add(s, addend, room, y);
    return;
  }
  LinearsArgs args = linears_of(x);
  put_product(x, weight, addend, y, args);
  s.kernels().linears(args, s.queue());
}

void gated_linear(Step& s, Tensor gate, const Tensor& up, const ActivationForm& form, const Tensor& weight,
                  const Tensor& addend, Tensor room, Tensor y) {
  if (!s.fuses(gate.dim[0])) {
    activation(s, gate, up, form, gate);
    return add_linear(s, gate, weight, addend, room, y);
  }
  DSA_ASSERT(same_shape(gate, up) && gate.stride[0] == up.stride[0]);
  LinearsArgs args = linears_of(gate);
  args.up = up.f32(), args.form = form;
  put_product(gate, weight, addend, y, args);
  s.kernels().linears(args, s.queue());
}

void head_linear(Step& s, const Tensor& x, const Tensor& weight, bool transposed, Tensor y) {
  DSA_ASSERT(x.rank == 3 && y.rank == 3 && weight.rank == 3 && x.dim[1] == weight.dim[0] &&
             y.dim[1] == x.dim[1]);
  DSA_ASSERT(x.dim[2] == weight.dim[transposed ? 1 : 2] && y.dim[2] == weight.dim[transposed ? 2 : 1]);
  const HeadLinearArgs args{.x = x.f32(),
                            .weight = weight.data,
                            .weight_type = weight.dtype,
                            .y = y.f32(),
                            .x_token_stride = x.stride[0],
                            .x_head_stride = x.stride[1],
                            .y_token_stride = y.stride[0],
                            .y_head_stride = y.stride[1],
                            .weight_head_stride = weight.stride[0],
                            .tokens = dim(x, 0),
                            .heads = dim(x, 1),
                            .in_dim = dim(x, 2),
                            .out_dim = dim(y, 2),
                            .transposed = transposed,
                            .route = s.route()};
  s.kernels().head_linear(args, s.queue());
}

void activation(Step& s, const Tensor& gate, const Tensor& up, const ActivationForm& form, Tensor y) {
  DSA_ASSERT(same_shape(gate, up) && same_shape(gate, y) && gate.is_dense() && up.is_dense() && y.is_dense());
  const ActivationArgs args{gate.f32(), up.f32(), y.f32(), gate.dim[0], dim(gate, 1), form};
  s.kernels().activation(args, s.queue());
}

void sigmoid_gate(Step& s, const Tensor& x, const Tensor& gate, Tensor y) {
  DSA_ASSERT(same_shape(x, gate) && same_shape(x, y) && x.is_dense() && gate.is_dense() && y.is_dense());
  const SigmoidGateArgs args{x.f32(), gate.f32(), y.f32(), x.dim[0], int(x.count() / x.dim[0])};
  s.kernels().sigmoid_gate(args, s.queue());
}

void add(Step& s, const Tensor& a, const Tensor& b, Tensor y) {
  DSA_ASSERT(same_shape(a, b) && same_shape(a, y) && a.is_dense() && b.is_dense() && y.is_dense());
  const AddArgs args{a.f32(), b.f32(), y.f32(), a.count()};
  s.kernels().add(args, s.queue());
}

void attn_residual(Step& s, const float* const* sources, int num_sources, const Tensor& query, float eps,
                   Tensor y) {
  DSA_ASSERT(num_sources <= AttnResidualArgs::kMaxSources && y.dim[1] == query.dim[0] && y.is_dense());
  const AttnResidualArgs args{sources, query.f32(), y.f32(), num_sources, dim(y, 0), dim(y, 1), eps};
  s.kernels().attn_residual(args, s.queue());
}

void router(Step& s, const Tensor& logits, const Tensor& bias, const Routing& routing, Tensor expert_ids,
            Tensor expert_weights) {
  DSA_ASSERT(same_shape(expert_ids, expert_weights) && logits.dim[0] == expert_ids.dim[0] &&
             logits.is_dense());
  DSA_ASSERT(routing.groups <= kRouterGroupsMax && logits.dim[1] % routing.groups == 0);
  const RouterArgs args{logits.f32(),       bias.is_null() ? nullptr : bias.f32(),
                        expert_ids.i32(),   expert_weights.f32(),
                        dim(logits, 0),     dim(logits, 1),
                        dim(expert_ids, 1), routing.renormalize,
                        routing.scale,      routing.groups,
                        routing.top_groups};
  s.kernels().router(args, s.queue());
}

void expert_plan(Step& s, const Tensor& expert_ids, Tensor offsets, Tensor pairs, Tensor rows) {
  DSA_ASSERT(pairs.dim[0] == expert_ids.count() && rows.dim[0] == expert_ids.count());
  const ExpertPlanArgs args{expert_ids.i32(),   offsets.i32(),       pairs.i32(),       rows.i32(),
                            dim(expert_ids, 0), dim(offsets, 0) - 1, dim(expert_ids, 1)};
  s.kernels().expert_plan(args, s.queue());
}

void expert_gather(Step& s, const Tensor& x, const Tensor& pairs, Tensor y) {
  DSA_ASSERT(pairs.dim[0] == y.dim[0] && x.dim[1] == y.dim[1] && x.is_dense() && y.is_dense());
  const ExpertGatherArgs args{x.f32(), pairs.i32(), y.f32(), dim(x, 0), int(y.dim[0] / x.dim[0]), dim(x, 1)};
  s.kernels().expert_gather(args, s.queue());
}

void expert_combine(Step& s, const Tensor& x, const Tensor& rows, const Tensor& expert_weights, Tensor y) {
  DSA_ASSERT(x.dim[0] == rows.dim[0] && expert_weights.count() == rows.dim[0] && x.dim[1] == y.dim[1]);
  const ExpertCombineArgs args{
      x.f32(), rows.i32(), expert_weights.f32(), y.f32(), dim(y, 0), dim(expert_weights, 1), dim(y, 1)};
  s.kernels().expert_combine(args, s.queue());
}

void expert_groups(Step& s, const Tensor& offsets, DType type, std::span<const ExpertProduct> products,
                   Mxfp4LinearGroup* mxfp4, ExpertLinearGroup* linear, int num_groups) {
  DSA_ASSERT(products.size() <= size_t(ExpertGroupsArgs::kMaxProducts) &&
             (mxfp4 == nullptr) != (linear == nullptr));
  ExpertGroupsArgs args{.offsets = offsets.i32(),
                        .products = {},
                        .mxfp4 = mxfp4,
                        .linear = linear,
                        .type = type,
                        .y_stride = products[0].y.stride[0],
                        .num_products = int(products.size()),
                        .experts = dim(offsets, 0) - 1,
                        .num_groups = num_groups};
  for (size_t i = 0; i < products.size(); ++i) {
    DSA_ASSERT(products[i].y.stride[0] == args.y_stride);
    args.products[i] = {products[i].matrices, products[i].y.f32()};
  }
  s.kernels().expert_groups(args, s.queue());
}

void expert_linear(Step& s, const Tensor& x, const ExpertLinearGroup* groups, int num_groups,
                   DType weight_type, int out_dim) {
  const ExpertLinearArgs args{x.f32(), groups,    num_groups, weight_type, x.stride[0],
                              out_dim, dim(x, 1), out_dim,    s.tokens()};
  s.kernels().expert_linear(args, s.queue());
}

void mxfp4_linear(Step& s, const Tensor& x, const Mxfp4LinearGroup* groups, int num_groups, int out_dim) {
  DSA_ASSERT(s.route() == Route::exact ||
             mxfp4_linear_workspace_bytes(x.dim[0], x.dim[1]) <= s.workspace().bytes);
  const Mxfp4LinearArgs args{x.f32(),   groups,    num_groups, s.workspace().data, x.stride[0], out_dim,
                             dim(x, 0), dim(x, 1), out_dim,    s.route(),          s.tokens()};
  s.kernels().mxfp4_linear(args, s.queue());
}

void expert_up(Step& s, const Tensor& x, const Tensor& expert_ids, const ExpertMatrix* gates,
               const ExpertMatrix* ups, Tensor gate, Tensor up) {
  DSA_ASSERT(same_shape(gate, up) && gate.is_dense() && up.is_dense() && gate.dim[0] == expert_ids.count());
  const ExpertUpArgs args{
      x.f32(),   expert_ids.i32(),   gates,     ups,          gate.f32(), up.f32(), x.stride[0],
      dim(x, 0), dim(expert_ids, 1), dim(x, 1), dim(gate, 1), s.route()};
  s.kernels().expert_up(args, s.queue());
}

void expert_down(Step& s, const Tensor& gate, const Tensor& up, const ActivationForm& form,
                 const Tensor& expert_ids, const Tensor& expert_weights, const ExpertMatrix* downs,
                 const Tensor& shared, const Tensor& addend, Tensor y) {
  DSA_ASSERT(same_shape(gate, up) && gate.is_dense() && up.is_dense() && gate.dim[0] == expert_ids.count());
  DSA_ASSERT(y.is_dense() && y.dim[0] == expert_ids.dim[0] && same_shape(expert_ids, expert_weights));
  DSA_ASSERT((shared.is_null() || (same_shape(shared, y) && shared.is_dense())) &&
             (addend.is_null() || (same_shape(addend, y) && addend.is_dense())));
  const ExpertDownArgs args{gate.f32(),
                            up.f32(),
                            form,
                            expert_ids.i32(),
                            expert_weights.f32(),
                            downs,
                            shared.is_null() ? nullptr : shared.f32(),
                            addend.is_null() ? nullptr : addend.f32(),
                            y.f32(),
                            dim(y, 0),
                            dim(expert_ids, 1),
                            dim(gate, 1),
                            dim(y, 1),
                            s.route()};
  s.kernels().expert_down(args, s.queue());
}

void mxfp4_exponents(Step& s, const uint8_t* blocks, const uint8_t* scales, int64_t rows, int in_dim,
                     int16_t* exponents, uint8_t* spreads) {
  s.kernels().mxfp4_exponents({blocks, scales, exponents, spreads, rows, in_dim}, s.queue());
}

void mxfp4_to_fp8(Step& s, Queue& queue, std::span<const Mxfp4ToFp8Group> groups, int in_dim, int out_dim,
                  int rows_beside) {
  s.kernels().mxfp4_to_fp8({groups.data(), int(groups.size()), in_dim, out_dim, rows_beside}, queue);
}

void fp8_pack(Step& s, const Tensor& x, uint8_t* codes, float* scales) {
  s.kernels().fp8_pack({x.f32(), nullptr, codes, scales, x.stride[0], dim(x, 0), dim(x, 1), 1}, s.queue());
}

void fp8_pack(Step& s, const Tensor& x, const Tensor& pairs, uint8_t* codes, float* scales) {
  DSA_ASSERT(pairs.dim[0] % x.dim[0] == 0);
  const Fp8PackArgs args{x.f32(),     pairs.i32(),   codes,     scales,
                         x.stride[0], dim(pairs, 0), dim(x, 1), dim(pairs, 0) / dim(x, 0)};
  s.kernels().fp8_pack(args, s.queue());
}

void fp8_expert_linear(Step& s, const uint8_t* x, const float* x_scales,
                       std::span<const Fp8ExpertLinearGroup> groups, int rows, int in_dim, int out_dim,
                       int64_t y_stride, int rows_beside) {
  const Fp8ExpertLinearArgs args{x,      x_scales, groups.data(), int(groups.size()), rows,
                                 in_dim, out_dim,  y_stride,      rows_beside};
  s.kernels().fp8_expert_linear(args, s.queue());
}

void mxfp4_expert_linear(Step& s, const uint8_t* x, const float* x_scales,
                         std::span<const Mxfp4ExpertLinearGroup> groups, int rows, int in_dim, int out_dim,
                         int64_t y_stride) {
  const Mxfp4ExpertLinearArgs args{x,    x_scales, groups.data(), int(groups.size()),
                                   rows, in_dim,   out_dim,       y_stride};
  s.kernels().mxfp4_expert_linear(args, s.queue());
}

void short_conv(Step& s, const Tensor& x, const Tensor& weight, const ShortConvSequence* sequences,
                Tensor y) {
  DSA_ASSERT(same_shape(x, y) && weight.dim[0] == x.dim[1]);
  const ShortConvArgs args{x.f32(),     weight.f32(),        y.f32(),   sequences,     x.stride[0],
                           y.stride[0], s.batch().sequences, dim(x, 1), dim(weight, 1)};
  s.kernels().short_conv(args, s.queue());
}

void kda_gate(Step& s, Tensor q, Tensor k, Tensor g, Tensor beta, const Tensor& a_log, const Tensor& dt_bias,
              float lower_bound) {
  DSA_ASSERT(q.rank == 3 && same_shape(q, k) && same_shape(q, g) && g.is_dense() && beta.is_dense());
  DSA_ASSERT(a_log.dim[0] >= q.dim[1] && dt_bias.count() == q.dim[1] * q.dim[2]);
  const KdaGateArgs args{q.f32(),     k.f32(),     g.f32(),  beta.f32(), a_log.f32(), dt_bias.f32(),
                         q.stride[0], k.stride[0], q.dim[0], dim(q, 1),  dim(q, 2),   lower_bound};
  s.kernels().kda_gate(args, s.queue());
}

void kda(Step& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
         const KdaSequence* sequences, Tensor o) {
  DSA_ASSERT(q.rank == 3 && v.rank == 3 && same_shape(q, k) && same_shape(v, o) && o.is_dense() &&
             g.is_dense());
  const KdaArgs args{q.f32(),   k.f32(),     v.f32(),     g.f32(),     beta.f32(),          o.f32(),
                     sequences, q.stride[0], k.stride[0], v.stride[0], s.batch().sequences, dim(q, 1),
                     dim(q, 2), dim(v, 2),   s.tokens(),  s.route()};
  const bool one_each = s.tokens() == s.batch().sequences;
  (one_each ? s.kernels().kda_step : s.kernels().kda_chunk)(args, s.queue());
}

void kda_decode(Step& s, const Tensor& qkv, const Tensor& z, const Tensor& b, const Tensor& gate,
                const KdaDecodeWeights& w, float lower_bound, float eps, const ShortConvSequence* convs,
                const KdaSequence* sequences, Tensor o) {
  DSA_ASSERT(same_shape(z, o) && z.is_dense() && b.is_dense() && gate.is_dense() && o.is_dense());
  DSA_ASSERT(w.conv.dim[0] == qkv.dim[1] && qkv.dim[1] == 3 * o.dim[1] * o.dim[2] &&
             o.dim[2] <= kKdaDecodeDimMax);
  const KdaDecodeArgs args{.qkv = qkv.f32(),
                           .conv_weight = w.conv.f32(),
                           .z = z.f32(),
                           .b = b.f32(),
                           .a_log = w.a_log.f32(),
                           .dt_bias = w.dt_bias.f32(),
                           .gate = gate.f32(),
                           .norm = w.norm.f32(),
                           .convs = convs,
                           .sequences = sequences,
                           .o = o.f32(),
                           .qkv_stride = qkv.stride[0],
                           .num_sequences = s.batch().sequences,
                           .heads = dim(o, 1),
                           .dim = dim(o, 2),
                           .width = dim(w.conv, 1),
                           .lower_bound = lower_bound,
                           .eps = eps};
  s.kernels().kda_decode(args, s.queue());
}

void gated_norm(Step& s, const Tensor& x, const Tensor& gate, const Tensor& weight, float eps, Tensor y) {
  DSA_ASSERT(x.rank == 3 && same_shape(x, y) && x.count() == gate.count() && weight.dim[0] == x.dim[2]);
  const GatedNormArgs args{x.f32(), gate.f32(), weight.f32(), y.f32(), x.dim[0], dim(x, 1), dim(x, 2), eps};
  s.kernels().gated_norm(args, s.queue());
}

void rope(Step& s, RopeKind kind, const Tensor& frequencies, float amplitude, Tensor x) {
  DSA_ASSERT(x.rank == 3 && x.dim[0] == s.tokens() && x.dim[2] == 2 * frequencies.dim[0]);
  DSA_ASSERT(kind != RopeKind::none && x.dim[2] <= kRopeDimMax);
  const RopeArgs args{x.f32(),   s.view().positions, frequencies.f32(), x.stride[0], x.stride[1],
                      dim(x, 0), dim(x, 1),          dim(x, 2),         kind,        amplitude};
  s.kernels().rope(args, s.queue());
}

void hadamard(Step& s, Tensor x) {
  DSA_ASSERT(x.is_dense());
  const HadamardArgs args{x.f32(), x.count() / x.dim[x.rank - 1], dim(x, x.rank - 1)};
  s.kernels().hadamard(args, s.queue());
}

void fp8_round(Step& s, Tensor x) {
  DSA_ASSERT(x.is_dense());
  const Fp8RoundArgs args{x.f32(), x.count() / x.dim[x.rank - 1], dim(x, x.rank - 1)};
  s.kernels().fp8_round(args, s.queue());
}

void append_rows(Step& s, const Tensor& x, PagedRows cache) {
  DSA_ASSERT(x.dim[0] == s.tokens() && x.dim[1] == cache.dim);
  const AppendRowsArgs args{x.f32(), s.view().sequence_of, s.view().positions,
                            cache,   x.stride[0],          s.tokens()};
  s.kernels().append_rows(args, s.queue());
}

namespace {

void index_scores(Step& s, const Tensor& q, const Tensor& head_weights, PagedRows k, const int32_t* visible,
                  int first, Tensor scores) {
  DSA_ASSERT(q.rank == 3 && q.dim[2] == k.dim && head_weights.dim[1] == q.dim[1] && q.is_dense());
  const int rows = dim(scores, 0);
  const Tensor q_rows = q.slice(first, rows), w_rows = head_weights.slice(first, rows);
  const IndexScoresArgs args{q_rows.f32(),
                             w_rows.f32(),
                             s.view().sequence_of + first,
                             visible + first,
                             k,
                             scores.f32(),
                             scores.stride[0],
                             rows,
                             dim(q, 1),
                             dim(q, 2),
                             dim(scores, 1),
                             s.route()};
  s.kernels().index_scores(args, s.queue());
}

}  // namespace

void index_scores(Step& s, const Tensor& q, const Tensor& head_weights, PagedRows k, int first,
                  Tensor scores) {
  index_scores(s, q, head_weights, k, s.view().visible, first, scores);
}

void index_scores(Step& s, const Tensor& q, const Tensor& head_weights, PagedRows k, const Tensor& visible,
                  int first, Tensor scores) {
  index_scores(s, q, head_weights, k, visible.i32(), first, scores);
}

void top_k(Step& s, const Tensor& scores, const Tensor& visible, int first, const Tensor& guesses,
           Tensor selected) {
  DSA_ASSERT(scores.dim[0] == selected.dim[0] && selected.is_dense());
  DSA_ASSERT(guesses.is_null() || first + scores.dim[0] <= guesses.dim[0]);
  auto* guess = guesses.is_null() ? nullptr : reinterpret_cast<uint32_t*>(guesses.i32()) + first;
  const TopKArgs args{scores.f32(),     visible.i32() + first, selected.i32(), scores.stride[0],
                      dim(selected, 0), dim(selected, 1),      guess};
  s.kernels().top_k(args, s.queue());
}

void pool_keys(Step& s, const Tensor& keys, const Tensor& gates, const Tensor& places,
               const PoolSequence* sequences, PagedRows pools, Tensor pools_visible) {
  DSA_ASSERT(same_shape(keys, gates) && keys.dim[1] == pools.dim && places.dim[1] == pools.dim);
  DSA_ASSERT(places.dim[0] <= kPoolGroupMax && places.is_dense() && pools_visible.dim[0] == keys.dim[0]);
  const PoolKeysArgs args{keys.f32(),     gates.f32(),     places.f32(),
                          sequences,      pools,           pools_visible.i32(),
                          keys.stride[0], gates.stride[0], s.batch().sequences,
                          dim(places, 0), dim(places, 1)};
  s.kernels().pool_keys(args, s.queue());
}

void expand_pools(Step& s, const Tensor& pools, int group, bool tail, Tensor selected) {
  const ExpandPoolsArgs args{
      pools.i32(), s.view().visible, selected.i32(), pools.dim[0], dim(pools, 1), group, tail};
  DSA_ASSERT(selected.dim[0] == pools.dim[0] && selected.dim[1] == args.slots() && selected.is_dense());
  s.kernels().expand_pools(args, s.queue());
}

void sparse_attention(Step& s, const Tensor& q_latent, const Tensor& q_rope, PagedRows latents,
                      const Tensor& selected, float scale, Tensor o) {
  DSA_ASSERT(q_latent.rank == 3 && q_rope.rank == 3 && same_shape(q_latent, o) && q_latent.is_dense() &&
             o.is_dense());
  DSA_ASSERT(q_latent.dim[2] + q_rope.dim[2] == latents.dim);
  const SparseAttentionArgs args{.q_latent = q_latent.f32(),
                                 .q_rope = q_rope.f32(),
                                 .sequence_of = s.view().sequence_of,
                                 .visible = s.view().visible,
                                 .selected = selected.is_null() ? nullptr : selected.i32(),
                                 .latents = latents,
                                 .o = o.f32(),
                                 .q_rope_token_stride = q_rope.stride[0],
                                 .q_rope_head_stride = q_rope.stride[1],
                                 .tokens = dim(q_latent, 0),
                                 .heads = dim(q_latent, 1),
                                 .latent_dim = dim(q_latent, 2),
                                 .rope_dim = dim(q_rope, 2),
                                 .top_k = selected.is_null() ? 0 : dim(selected, 1),
                                 .scale = scale,
                                 .route = s.route()};
  s.kernels().sparse_attention(args, s.queue());
}

void gqa_attention(Step& s, const Tensor& q, PagedRows k, PagedRows v, const Tensor& sinks, int window,
                   float scale, Tensor o) {
  DSA_ASSERT(q.rank == 3 && same_shape(q, o) && q.is_dense() && o.is_dense() && k.dim == v.dim);
  DSA_ASSERT(k.format == v.format);
  DSA_ASSERT(k.dim % q.dim[2] == 0 && q.dim[1] % (k.dim / q.dim[2]) == 0);
  const GqaAttentionArgs args{.q = q.f32(),
                              .sequence_of = s.view().sequence_of,
                              .visible = s.view().visible,
                              .k = k,
                              .v = v,
                              .sinks = sinks.is_null() ? nullptr : sinks.f32(),
                              .o = o.f32(),
                              .tokens = dim(q, 0),
                              .heads = dim(q, 1),
                              .kv_heads = k.dim / dim(q, 2),
                              .dim = dim(q, 2),
                              .window = window,
                              .scale = scale,
                              .route = s.route(),
                              .num_sequences = s.batch().sequences};
  s.kernels().gqa_attention(args, s.queue());
}

void add_bias(Step& s, const Tensor& bias, Tensor y) {
  DSA_ASSERT((y.rank == 2 || y.rank == 3) && bias.count() * y.dim[0] == y.count());
  const bool parts = y.rank == 3;
  const AddBiasArgs args{bias.data,         bias.dtype,  nullptr,
                         y.f32(),           y.stride[0], parts ? y.stride[1] : 0,
                         y.dim[0],          1,           parts ? dim(y, 1) : 1,
                         dim(y, y.rank - 1)};
  s.kernels().add_bias(args, s.queue());
}

void add_bias(Step& s, const Tensor& bias, const Tensor& offsets, Tensor y) {
  DSA_ASSERT(y.rank == 2 && bias.dim[1] == y.dim[1] && offsets.dim[0] == bias.dim[0] + 1);
  const AddBiasArgs args{bias.data, bias.dtype, offsets.i32(), y.f32(), y.stride[0],
                         0,         y.dim[0],   dim(bias, 0),  1,       dim(y, 1)};
  s.kernels().add_bias(args, s.queue());
}

void head_norm(Step& s, const Tensor& weight, float eps, Tensor x) {
  DSA_ASSERT(x.rank == 3 && weight.dim[0] == x.dim[2]);
  const HeadNormArgs args{x.f32(),  weight.f32(), x.stride[0], x.stride[1],
                          x.dim[0], dim(x, 1),    dim(x, 2),   eps};
  s.kernels().head_norm(args, s.queue());
}

void softmax_router(Step& s, const Tensor& logits, Tensor expert_ids, Tensor expert_weights) {
  DSA_ASSERT(same_shape(expert_ids, expert_weights) && logits.dim[0] == expert_ids.dim[0] &&
             logits.is_dense());
  const SoftmaxRouterArgs args{logits.f32(),   expert_ids.i32(), expert_weights.f32(),
                               dim(logits, 0), dim(logits, 1),   dim(expert_ids, 1)};
  s.kernels().softmax_router(args, s.queue());
}

void alpha_swiglu(Step& s, const Tensor& x, float alpha, float limit, Tensor y) {
  DSA_ASSERT(x.dim[0] == y.dim[0] && x.dim[1] == 2 * y.dim[1] && x.is_dense() && y.is_dense());
  const AlphaSwigluArgs args{x.f32(), y.f32(), y.dim[0], dim(y, 1), alpha, limit};
  s.kernels().alpha_swiglu(args, s.queue());
}

void hyper_spread(Step& s, const Tensor& y, Tensor x) {
  DSA_ASSERT(x.rank == 3 && y.dim[0] == x.dim[0] && y.dim[1] == x.dim[2] && x.is_dense() && y.is_dense());
  const HyperSpreadArgs args{y.f32(), x.f32(), x.dim[0], dim(x, 1), dim(x, 2)};
  s.kernels().hyper_spread(args, s.queue());
}

void hyper_mix(Step& s, const Tensor& x, const Tensor& logits, const Tensor& base, const Tensor& scale,
               int iterations, float norm_eps, float eps, Tensor y, Tensor coefficients) {
  DSA_ASSERT(x.rank == 3 && x.dim[1] <= kHyperStreamsMax && y.dim[1] == x.dim[2] && x.is_dense() &&
             y.is_dense());
  DSA_ASSERT(logits.dim[1] == (2 + x.dim[1]) * x.dim[1] && coefficients.dim[1] == (1 + x.dim[1]) * x.dim[1]);
  const HyperMixArgs args{x.f32(),  logits.f32(), base.f32(), scale.f32(), y.f32(),  coefficients.f32(),
                          x.dim[0], dim(x, 1),    dim(x, 2),  iterations,  norm_eps, eps};
  s.kernels().hyper_mix(args, s.queue());
}

void hyper_add(Step& s, const Tensor& y, const Tensor& coefficients, Tensor x) {
  DSA_ASSERT(x.rank == 3 && y.dim[0] == x.dim[0] && y.dim[1] == x.dim[2] && x.is_dense() && y.is_dense());
  const HyperAddArgs args{x.f32(), y.f32(), coefficients.f32(), x.dim[0], dim(x, 1), dim(x, 2)};
  s.kernels().hyper_add(args, s.queue());
}

void hyper_mean(Step& s, const Tensor& x, Tensor y) {
  DSA_ASSERT(x.rank == 3 && y.dim[0] == x.dim[0] && y.dim[1] == x.dim[2] && x.is_dense() && y.is_dense());
  const HyperMeanArgs args{x.f32(), y.f32(), x.dim[0], dim(x, 1), dim(x, 2)};
  s.kernels().hyper_mean(args, s.queue());
}

void place_rows(Step& s, Tensor y) {
  DSA_ASSERT(y.dim[0] == s.tokens() && y.is_dense());
  if (s.batch().placed.empty()) return;
  const PlaceRowsArgs args{s.view().placed, y.f32(), int(s.batch().placed.size()), dim(y, 1)};
  s.kernels().place_rows(args, s.queue());
}

void copy(Step& s, const Tensor& x, Tensor y) {
  DSA_ASSERT(x.count() == y.count() && x.dtype == y.dtype && x.is_dense() && y.is_dense());
  s.storage().copy(y.data, x.data, size_t(x.count()) * dtype_bytes(x.dtype));
}

void gelu(Step& s, GeluKind kind, const Tensor& x, Tensor y) {
  DSA_ASSERT(same_shape(x, y) && x.is_dense() && y.is_dense());
  const GeluArgs args{x.f32(), y.f32(), x.count(), kind};
  s.kernels().gelu(args, s.queue());
}

void sample(Step& s, const Tensor& logits) {
  const std::vector<SampleRow>& asked = s.batch().asked;
  DSA_ASSERT(logits.dim[0] == int64_t(asked.size()));
  const SampleFlags flags = sample_flags(asked, logits.dim[1]);
  const SampleArgs args{logits.f32(),     s.view().asked, s.view().sampled, s.view().next_token_ids,
                        logits.stride[0], dim(logits, 0), dim(logits, 1),   flags};
  s.kernels().sample(args, s.queue());
}
void gather_rows(Step& s, const Tensor& x, const Tensor& rows, Tensor y) {
  DSA_ASSERT(rows.dim[0] == y.dim[0] && x.dim[1] == y.dim[1] && x.is_dense() && y.is_dense());
  const GatherRowsArgs args{x.f32(), rows.i32(), y.f32(), y.dim[0], dim(y, 1)};
  s.kernels().gather_rows(args, s.queue());
}

void grid_embedding(Step& s, const Tensor& table, const Grid* grids, int num_grids, Tensor x) {
  DSA_ASSERT(table.rank == 3 && table.dim[2] == x.dim[1] && table.is_dense() && x.is_dense());
  const GridEmbeddingArgs args{table.data, table.dtype,   grids,         x.f32(),
                               num_grids,  dim(table, 0), dim(table, 1), dim(table, 2)};
  s.kernels().grid_embedding(args, s.queue());
}

void rope_2d(Step& s, Rope2dKind kind, Tensor x, const Tensor& rows, const Tensor& columns,
             const Tensor& turns) {
  DSA_ASSERT(x.rank == 3 && x.dim[2] % 4 == 0 && x.dim[2] <= kRope2dDimMax);
  DSA_ASSERT(rows.dim[0] == x.dim[0] && columns.dim[0] == x.dim[0] && turns.dim[1] == x.dim[2] / 2);
  const Rope2dArgs args{x.f32(),     rows.i32(), columns.i32(), turns.f32(), x.stride[0],
                        x.stride[1], dim(x, 0),  dim(x, 1),     dim(x, 2),   kind};
  s.kernels().rope_2d(args, s.queue());
}

void vision_attention(Step& s, const Tensor& q, const Tensor& k, const Tensor& v,
                      const VisionAttentionRun* runs, int num_runs, float scale, Tensor o) {
  DSA_ASSERT(q.rank == 3 && same_shape(k, v) && same_shape(q, o) && q.dim[2] <= kVisionHeadDimMax);
  DSA_ASSERT(k.stride[0] == v.stride[0] && k.stride[1] == v.stride[1]);
  const VisionAttentionArgs args{.q = q.f32(),
                                 .k = k.f32(),
                                 .v = v.f32(),
                                 .runs = runs,
                                 .o = o.f32(),
                                 .q_token_stride = q.stride[0],
                                 .q_head_stride = q.stride[1],
                                 .kv_token_stride = k.stride[0],
                                 .kv_head_stride = k.stride[1],
                                 .o_token_stride = o.stride[0],
                                 .o_head_stride = o.stride[1],
                                 .num_runs = num_runs,
                                 .heads = dim(q, 1),
                                 .dim = dim(q, 2),
                                 .scale = scale,
                                 .route = s.route()};
  s.kernels().vision_attention(args, s.queue());
}

}  // namespace dsa::ops
