#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// One product of every expert that has rows: x -> y, through the matrix that `pick` names.
struct ExpertProduct {
  ExpertMatrix ExpertWeights::*pick;
  Tensor y;  // [sorted rows, out_dim]
};

// All of `products` at once, one number format after the other; they share x, [sorted rows, in_dim], and out_dim.
void expert_products(Step& s, const BlockContext& c, const MoeWeights& w, const Tensor& x,
                     std::initializer_list<ExpertProduct> products) {
  Activations& a = s.activations();
  const int experts = c.config.moe.experts;
  const int32_t* offsets = a.offsets.i32();
  const int out_dim = int(products.begin()->y.dim[1]);
  for (const DType type : {DType::u8, DType::f8_e4m3, DType::bf16, DType::f32}) {
    a.mxfp4_groups.clear();
    a.linear_groups.clear();
    for (int e = 0; e < experts; ++e) {
      const int begin = offsets[e], rows = offsets[e + 1] - begin;
      if (rows == 0) continue;
      const ExpertWeights& expert = w.experts[size_t((e + c.options.rotate_experts) % experts)];
      for (const ExpertProduct& product : products) {
        const ExpertMatrix& matrix = expert.*product.pick;
        float* y = product.y.f32() + int64_t(begin) * product.y.stride[0];
        if (matrix.type != type) continue;
        if (type == DType::u8)
          a.mxfp4_groups.push_back({static_cast<const uint8_t*>(matrix.data), matrix.scales, begin, rows, y});
        else
          a.linear_groups.push_back({matrix.data, begin, rows, y, matrix.block_scales});
      }
    }
    if (!a.mxfp4_groups.empty())
      ops::mxfp4_linear(s, x, a.mxfp4_groups.data(), int(a.mxfp4_groups.size()), out_dim);
    if (!a.linear_groups.empty())
      ops::expert_linear(s, x, a.linear_groups.data(), int(a.linear_groups.size()), type, out_dim);
  }
}

// Experts of the full width with biases, and nothing beside them.
void biased_moe(Step& s, const BlockContext& c, const MoeWeights& w, Tensor h, Tensor out) {
  Activations& a = s.activations();
  const MoeConfig& config = c.config.moe;
  ops::exact_linear(s, h, w.router, a.router_logits);  // [tokens, experts]
  ops::add_bias(s, w.router_logit_bias, a.router_logits);
  ops::softmax_router(s, a.router_logits, a.expert_ids, a.expert_weights);
  ops::expert_plan(s, a.expert_ids, a.offsets, a.pairs, a.rows);

  ops::expert_gather(s, h, a.pairs, a.expert_x);  // [tokens * top_k, hidden]
  expert_products(s, c, w, a.expert_x, {{&ExpertWeights::gate, a.expert_gate_up}});
  ops::add_bias(s, w.gate_up_bias, a.offsets, a.expert_gate_up);  // [tokens * top_k, 2 * dim]
  ops::alpha_swiglu(s, a.expert_gate_up, config.alpha, config.limit, a.expert_gate);
  expert_products(s, c, w, a.expert_gate, {{&ExpertWeights::down, a.expert_y}});
  ops::add_bias(s, w.down_bias, a.offsets, a.expert_y);               // [tokens * top_k, hidden]
  ops::expert_combine(s, a.expert_y, a.rows, a.expert_weights, out);  // [tokens, hidden]
}

}  // namespace

// Experts, in a narrow latent space if the model has one, beside a shared expert that every token takes.
void moe(Step& s, const BlockContext& c, const MoeWeights& w, Tensor h, Tensor out) {
  Activations& a = s.activations();
  const MoeConfig& config = c.config.moe;
  if (config.biased) return biased_moe(s, c, w, h, out);

  // Which experts, and how much of each: decided on the full hidden vector.
  ops::exact_linear(s, h, w.router, a.router_logits);  // [tokens, experts]
  const ops::Routing routing{config.renormalize, config.scale, config.groups, config.top_groups};
  ops::router(s, a.router_logits, w.router_bias, routing, a.expert_ids, a.expert_weights);
  ops::expert_plan(s, a.expert_ids, a.offsets, a.pairs, a.rows);

  // The experts, each on the rows that chose it.
  const bool latent = !w.latent_down.is_null();
  if (latent) ops::linear(s, h, w.latent_down, a.latent);             // [tokens, latent]
  ops::expert_gather(s, latent ? a.latent : h, a.pairs, a.expert_x);  // [tokens * top_k, width]
  expert_products(s, c, w, a.expert_x,
                  {{&ExpertWeights::gate, a.expert_gate}, {&ExpertWeights::up, a.expert_up}});
  ops::activation(s, a.expert_gate, a.expert_up, c.config.mlp.activation, a.expert_gate);
  expert_products(s, c, w, a.expert_gate, {{&ExpertWeights::down, a.expert_y}});  // [tokens * top_k, width]
  const Tensor combined = latent ? a.latent : out;
  ops::expert_combine(s, a.expert_y, a.rows, a.expert_weights, combined);  // [tokens, width]

  // In latent space one norm on the weighted sum, and back to the full width; the shared expert on top.
  if (!w.latent_norm.is_null()) ops::rms_norm(s, a.latent, w.latent_norm, c.config.norm_eps, a.latent);
  if (latent) ops::linear(s, a.latent, w.latent_up, out);  // [tokens, hidden]
  mlp(s, c, w.shared, h, a.x);
  ops::add(s, out, a.x, out);
}

}  // namespace dsa
