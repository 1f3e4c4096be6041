#include <algorithm>
#include <iterator>

#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

using Products = std::initializer_list<ops::ExpertProduct>;

// The products of the experts of one layer, each on the rows that chose it. Few rows: they are taken as they are. More: rows
// become FP8, and so do weights within the product. Even more: weights become FP8 in the workspace, a part of the experts
// after the other. While a part is multiplied, the side of the queue expands the next into the other half.
class ExpertProducts {
 public:
  // The plan of the experts is made: the first part may begin.
  ExpertProducts(Step& s, const BlockContext& c, const MoeWeights& w)
      : s_(s),
        c_(c),
        w_(w),
        side_(c.options.overlap ? s.side() : s.queue()),
        many_(w.fp8[0].direct != nullptr && has_rows(c.fp8_rows)),
        expands_(many_ && w.fp8[0].expand != nullptr && has_rows(c.options.expand_rows)) {
    if (many_) c.counts.fp8_rows += uint64_t(s.activations().pairs.dim[0]);
    if (!expands_) return;
    s.follow(side_, s.queue());
    expand_next(0);
  }

  // x is [tokens, width], the products [sorted rows, out_dim].
  void gates(const Tensor& x, Products products) {
    Activations& a = s_.activations();
    if (many_) {
      ops::fp8_pack(s_, x, a.pairs, c_.fp8_workspace->x(), c_.fp8_workspace->x_scales());
      return multiply(w_.fp8[0], products);
    }
    ops::expert_gather(s_, x, a.pairs, a.expert_x);  // [tokens * top_k, width]
    multiply(a.expert_x, products);
  }
  // x is [sorted rows, dim].
  void downs(const Tensor& x, Products products) {
    if (!many_) return multiply(x, products);
    ops::fp8_pack(s_, x, c_.fp8_workspace->x(), c_.fp8_workspace->x_scales());
    multiply(w_.fp8[1], products);
  }

 private:
  // Of an expert, on average.
  bool has_rows(int rows) const {
    return s_.activations().pairs.dim[0] >= int64_t(rows) * c_.config.moe.experts;
  }
  // As they lie, one number format after the other.
  void multiply(const Tensor& x, Products products) {
    Activations& a = s_.activations();
    const int out_dim = int(products.begin()->y.dim[1]);
    const int groups = int(products.size()) * int(std::min<int64_t>(c_.config.moe.experts, x.dim[0]));
    for (const DType type : w_.types) {
      const bool mxfp4 = type == DType::u8;
      ops::expert_groups(s_, a.offsets, type, {products.begin(), products.size()},
                         mxfp4 ? a.mxfp4_groups : nullptr, mxfp4 ? nullptr : a.linear_groups, groups);
      if (mxfp4)
        ops::mxfp4_linear(s_, x, a.mxfp4_groups, groups, out_dim);
      else
        ops::expert_linear(s_, x, a.linear_groups, groups, type, out_dim);
    }
  }
  // As FP8, all at once or through the workspace.
  void multiply(const Fp8Stage& stage, Products products) {
    const Fp8Workspace& workspace = *c_.fp8_workspace;
    const int rows = int(s_.activations().pairs.dim[0]), mean = rows / c_.config.moe.experts;
    if (!expands_)
      return ops::mxfp4_expert_linear(s_, workspace.x(), workspace.x_scales(),
                                      {stage.direct, size_t(c_.config.moe.experts * stage.matrices)}, rows,
                                      stage.in_dim, stage.out_dim, products.begin()->y.stride[0]);
    for (int e = 0; e < c_.config.moe.experts; e += stage.at_once) {
      s_.follow(s_.queue(), side_);  // which has expanded this part
      s_.follow(side_, s_.queue());  // which has multiplied the part before
      const bool last = &stage == std::end(w_.fp8) - 1 && e + stage.at_once >= c_.config.moe.experts;
      const int beside = last || &side_ == &s_.queue() ? 0 : std::max(mean, 1);
      ops::fp8_expert_linear(s_, workspace.x(), workspace.x_scales(), part(stage, stage.multiply, e), rows,
                             stage.in_dim, stage.out_dim, products.begin()->y.stride[0], beside);
      if (!last) expand_next(beside);
    }
  }
  void expand_next(int rows_beside) {
    const Fp8Stage& stage = w_.fp8[stage_];
    ops::mxfp4_to_fp8(s_, side_, part(stage, stage.expand, expert_), stage.in_dim, stage.out_dim,
                      rows_beside);
    expert_ += stage.at_once;
    if (expert_ >= c_.config.moe.experts) expert_ = 0, ++stage_;
  }
  // Of the table of a stage, from expert e on.
  template <class Group>
  std::span<const Group> part(const Fp8Stage& stage, const Group* groups, int e) const {
    const int experts = std::min(stage.at_once, c_.config.moe.experts - e);
    return {groups + e * stage.matrices, size_t(experts * stage.matrices)};
  }

  Step& s_;
  const BlockContext& c_;
  const MoeWeights& w_;
  Queue& side_;
  const bool many_, expands_;
  size_t stage_ = 0;  // of the part that is expanded next
  int expert_ = 0;    // its first
};

// Experts of the full width with biases, and nothing beside them.
void biased_moe(Step& s, const BlockContext& c, const MoeWeights& w, const BlockInput& in,
                const BlockOutput& out) {
  Activations& a = s.activations();
  const MoeConfig& config = c.config.moe;
  ops::norm_linears(s, in.x, in.norm, c.config.norm_eps, a.h,
                    {{w.router, a.router_logits, true}});  // [tokens, experts]
  ops::add_bias(s, w.router_logit_bias, a.router_logits);
  ops::softmax_router(s, a.router_logits, a.expert_ids, a.expert_weights);
  ops::expert_plan(s, a.expert_ids, a.offsets, a.pairs, a.rows);

  ExpertProducts experts(s, c, w);
  experts.gates(a.h, {{w.gates, a.expert_gate_up}});              // [tokens * top_k, 2 * dim]
  ops::add_bias(s, w.gate_up_bias, a.offsets, a.expert_gate_up);  // [tokens * top_k, 2 * dim]
  ops::alpha_swiglu(s, a.expert_gate_up, config.alpha, config.limit, a.expert_gate);
  experts.downs(a.expert_gate, {{w.downs, a.expert_y}});
  ops::add_bias(s, w.down_bias, a.offsets, a.expert_y);                 // [tokens * top_k, hidden]
  ops::expert_combine(s, a.expert_y, a.rows, a.expert_weights, a.out);  // [tokens, hidden]
  if (!out.addend.is_null()) ops::add(s, out.addend, a.out, out.y);
}

// The first rows and `dim` columns of a buffer that other blocks use with other widths.
Tensor narrow(const Tensor& buffer, int64_t rows, int64_t dim) {
  return Tensor(buffer.data, DType::f32, {rows, dim});
}

// Whether each token may go to its experts by itself.
bool goes_without_plan(const Step& s, const MoeConfig& config, const MoeWeights& w, int64_t tokens) {
  return s.fuses(tokens) && w.types.size() == 1 && w.types[0] == DType::u8 &&
         config.top_k <= kExpertTopKMax && int64_t(config.top_k) * config.expert_dim <= kExpertDownInputsMax;
}

// The experts, each on the rows that chose it: [tokens, width] in, and out.
void planned_experts(Step& s, const BlockContext& c, const MoeWeights& w, const Tensor& x, const Tensor& y) {
  Activations& a = s.activations();
  ops::expert_plan(s, a.expert_ids, a.offsets, a.pairs, a.rows);
  ExpertProducts experts(s, c, w);
  experts.gates(x, {{w.gates, a.expert_gate}, {w.ups, a.expert_up}});  // [tokens * top_k, dim]
  ops::activation(s, a.expert_gate, a.expert_up, c.config.mlp.activation, a.expert_gate);
  experts.downs(a.expert_gate, {{w.downs, a.expert_y}});  // [tokens * top_k, width]
  ops::expert_combine(s, a.expert_y, a.rows, a.expert_weights, y);
}

}  // namespace

// Experts, in a narrow latent space if the model has one, beside a shared expert that every token takes.
void moe(Step& s, const BlockContext& c, const MoeWeights& w, const BlockInput& in, const BlockOutput& out) {
  Activations& a = s.activations();
  const MoeConfig& config = c.config.moe;
  c.counts.rows += uint64_t(in.x.dim[0] * config.top_k);
  if (config.biased) return biased_moe(s, c, w, in, out);
  const ActivationForm& form = c.config.mlp.activation;
  const bool latent = !w.latent_down.is_null();
  const int64_t tokens = in.x.dim[0], shared_dim = w.shared.gate.dim[0];
  const Tensor gate = narrow(a.mlp_gate, tokens, shared_dim), up = narrow(a.mlp_up, tokens, shared_dim);

  // Which experts, and how much of each: decided on the full hidden vector.
  ops::norm_linears(s, in.x, in.norm, c.config.norm_eps, a.h,
                    {{w.router, a.router_logits, true},  // [tokens, experts]
                     {w.latent_down, a.latent},          // [tokens, latent]
                     {w.shared.gate, gate},              // [tokens, shared dim]
                     {w.shared.up, up}});
  const ops::Routing routing{config.renormalize, config.scale, config.groups, config.top_groups};
  ops::router(s, a.router_logits, w.router_bias, routing, a.expert_ids, a.expert_weights);

  const Tensor x = latent ? a.latent : a.h;
  const bool few = goes_without_plan(s, config, w, tokens);
  if (few) ops::expert_up(s, x, a.expert_ids, w.gates, w.ups, a.expert_gate, a.expert_up);
  ops::gated_linear(s, gate, up, form, w.shared.down, {}, {}, a.x);  // [tokens, hidden]
  if (few && !latent)
    return ops::expert_down(s, a.expert_gate, a.expert_up, form, a.expert_ids, a.expert_weights, w.downs, a.x,
                            out.addend, out.y);
  const Tensor combined = latent ? a.latent : a.out;  // [tokens, width]
  if (few)
    ops::expert_down(s, a.expert_gate, a.expert_up, form, a.expert_ids, a.expert_weights, w.downs, {}, {},
                     combined);
  else
    planned_experts(s, c, w, x, combined);

  // In latent space one norm on the weighted sum, and back to the full width; the shared expert on top.
  if (!w.latent_norm.is_null()) ops::rms_norm(s, a.latent, w.latent_norm, c.config.norm_eps, a.latent);
  if (latent) ops::linear(s, a.latent, w.latent_up, a.out);  // [tokens, hidden]
  ops::add(s, a.out, a.x, a.out);
  if (!out.addend.is_null()) ops::add(s, out.addend, a.out, out.y);
}

}  // namespace dsa
