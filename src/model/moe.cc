#include "model/blocks.h"
#include "ops/ops.h"

namespace dsa {
namespace {

// One product of every expert that has rows: x -> y, through the matrix that `pick` names.
struct ExpertProduct {
  ExpertMatrix ExpertWeights::*pick;
  Tensor y;  // [sorted rows, out_dim]
};

// All of `products` at once; they share x, [sorted rows, in_dim], and out_dim.
void expert_products(Step& s, const BlockContext& c, const MoeWeights& w, const Tensor& x,
                     std::initializer_list<ExpertProduct> products) {
  Activations& a = s.activations();
  const int experts = c.config.moe.experts;
  const int32_t* offsets = a.offsets.i32();
  a.mxfp4_groups.clear();
  a.linear_groups.clear();
  int out_dim = 0;
  for (int e = 0; e < experts; ++e) {
    const int begin = offsets[e], rows = offsets[e + 1] - begin;
    if (rows == 0) continue;
    const ExpertWeights& expert = w.experts[size_t((e + c.options.rotate_experts) % experts)];
    for (const ExpertProduct& product : products) {
      const ExpertMatrix& matrix = expert.*product.pick;
      out_dim = int(product.y.dim[1]);
      float* y = product.y.f32() + int64_t(begin) * product.y.stride[0];
      if (w.mxfp4)
        a.mxfp4_groups.push_back({matrix.blocks, matrix.scales, begin, rows, y});
      else
        a.linear_groups.push_back({matrix.plain, begin, rows, y});
    }
  }
  if (w.mxfp4)
    ops::mxfp4_linear(s, x, a.mxfp4_groups.data(), int(a.mxfp4_groups.size()), c.options.mxfp4_route, out_dim,
                      a.mxfp4_workspace);
  else
    ops::expert_linear(s, x, a.linear_groups.data(), int(a.linear_groups.size()), w.plain_type, out_dim);
}

}  // namespace

// Experts that live in a narrow latent space, beside a shared expert that every token takes.
void moe(Step& s, const BlockContext& c, const MoeWeights& w, Tensor h, Tensor out) {
  Activations& a = s.activations();
  const MoeConfig& config = c.config.moe;

  // Which experts, and how much of each: decided on the full hidden vector.
  ops::linear(s, h, w.router, a.router_logits);  // [tokens, experts]
  ops::router(s, a.router_logits, w.router_bias, config.renormalize, config.scale, a.expert_ids,
              a.expert_weights);
  ops::expert_plan(s, a.expert_ids, a.offsets, a.pairs, a.rows);

  // The experts, each on the rows that chose it.
  ops::linear(s, h, w.latent_down, a.latent);            // [tokens, latent]
  ops::expert_gather(s, a.latent, a.pairs, a.expert_x);  // [tokens * top_k, latent]
  expert_products(s, c, w, a.expert_x,
                  {{&ExpertWeights::gate, a.expert_gate}, {&ExpertWeights::up, a.expert_up}});
  ops::activation(s, a.expert_gate, a.expert_up, c.config.mlp.beta, c.config.mlp.linear_beta, a.expert_gate);
  expert_products(s, c, w, a.expert_gate, {{&ExpertWeights::down, a.expert_y}});  // [tokens * top_k, latent]
  ops::expert_combine(s, a.expert_y, a.rows, a.expert_weights, a.latent);         // [tokens, latent]

  // One norm on the weighted sum, back to the full width, and the shared expert on top.
  if (!w.latent_norm.is_null()) ops::rms_norm(s, a.latent, w.latent_norm, c.config.norm_eps, a.latent);
  ops::linear(s, a.latent, w.latent_up, a.x);  // [tokens, hidden]
  mlp(s, c, w.shared, h, out);
  ops::add(s, out, a.x, out);
}

}  // namespace dsa
