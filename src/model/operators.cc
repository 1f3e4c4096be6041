#include "model/operators.h"

#include <algorithm>

namespace dsa {
namespace {

// The name of an operator that the table has.
#define DSA_OPERATOR(name) (static_cast<void>(&KernelTable::name), std::string_view(#name))

class Needs {
 public:
  void add(const char* block, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      auto at =
          std::find_if(needs_.begin(), needs_.end(), [&](const auto& need) { return need.name == name; });
      if (at == needs_.end()) at = needs_.insert(at, {name, {}});
      if (std::find(at->used_by.begin(), at->used_by.end(), block) == at->used_by.end())
        at->used_by.emplace_back(block);
    }
  }
  std::vector<OperatorNeed> take() { return std::move(needs_); }

 private:
  std::vector<OperatorNeed> needs_;
};

void add_residuals(const ModelConfig& c, Needs& needs) {
  switch (c.residual) {
    case ResidualKind::plain: return needs.add("residuals", {DSA_OPERATOR(add)});
    case ResidualKind::attn_residual:
      return needs.add("attention residuals", {DSA_OPERATOR(attn_residual), DSA_OPERATOR(add)});
    case ResidualKind::hyper:
      return needs.add("hyper-connections",
                       {DSA_OPERATOR(hyper_spread), DSA_OPERATOR(linear), DSA_OPERATOR(hyper_mix),
                        DSA_OPERATOR(hyper_add), DSA_OPERATOR(hyper_mean)});
  }
}

void add_indexer(const ModelConfig& c, Needs& needs) {
  constexpr const char* kBlock = "indexer";
  needs.add(kBlock, {DSA_OPERATOR(linear), DSA_OPERATOR(layer_norm)});
  if (c.indexer.rope != RopeKind::none) needs.add(kBlock, {DSA_OPERATOR(rope)});
  if (c.indexer.fp8_keys) needs.add(kBlock, {DSA_OPERATOR(hadamard), DSA_OPERATOR(fp8_round)});
  needs.add(kBlock, {c.indexer.group > 1 ? DSA_OPERATOR(pool_keys) : DSA_OPERATOR(append_rows),
                     DSA_OPERATOR(index_scores), DSA_OPERATOR(top_k)});
  if (c.indexer.group > 1) needs.add(kBlock, {DSA_OPERATOR(expand_pools)});
}

void add_attention(const ModelConfig& c, const LayerConfig& layer, Needs& needs) {
  switch (layer.attention) {
    case AttentionKind::kda:
      return needs.add("KDA", {DSA_OPERATOR(linear), DSA_OPERATOR(short_conv), DSA_OPERATOR(kda_gate),
                               DSA_OPERATOR(kda_step), DSA_OPERATOR(kda_chunk), DSA_OPERATOR(gated_norm)});
    case AttentionKind::grouped:
      return needs.add("grouped attention", {DSA_OPERATOR(linear), DSA_OPERATOR(add_bias), DSA_OPERATOR(rope),
                                             DSA_OPERATOR(append_rows), DSA_OPERATOR(gqa_attention)});
    case AttentionKind::latent: break;
  }
  constexpr const char* kBlock = "latent attention";
  needs.add(kBlock, {DSA_OPERATOR(linear), DSA_OPERATOR(rms_norm), DSA_OPERATOR(head_linear)});
  if (c.latent.rope != RopeKind::none) needs.add(kBlock, {DSA_OPERATOR(rope)});
  needs.add(kBlock, {DSA_OPERATOR(append_rows)});
  if (layer.indexer == IndexerKind::full) add_indexer(c, needs);
  needs.add(kBlock, {DSA_OPERATOR(sparse_attention)});
  if (c.latent.output_gate) needs.add(kBlock, {DSA_OPERATOR(sigmoid_gate)});
}

void add_experts(const ModelConfig& c, const WeightSurvey& survey, bool fp8_workspace, Needs& needs) {
  constexpr const char* kBlock = "experts";
  needs.add(kBlock, {DSA_OPERATOR(linear)});
  if (c.moe.biased)
    needs.add(kBlock, {DSA_OPERATOR(add_bias), DSA_OPERATOR(softmax_router)});
  else
    needs.add(kBlock, {DSA_OPERATOR(router)});
  needs.add(kBlock, {DSA_OPERATOR(expert_plan), DSA_OPERATOR(expert_gather), DSA_OPERATOR(expert_groups)});
  for (const auto& [key, pattern] : survey.patterns()) {
    if (pattern.part != WeightPart::routed_experts) continue;
    if (pattern.use == TensorUse::mxfp4_blocks) {
      needs.add(kBlock, {DSA_OPERATOR(mxfp4_linear)});
      if (fp8_workspace)
        needs.add("FP8 workspace",
                  {DSA_OPERATOR(mxfp4_exponents), DSA_OPERATOR(fp8_pack), DSA_OPERATOR(mxfp4_expert_linear),
                   DSA_OPERATOR(mxfp4_to_fp8), DSA_OPERATOR(fp8_expert_linear)});
    }
    if (pattern.use == TensorUse::matrix || pattern.use == TensorUse::stacked_experts)
      needs.add(kBlock, {DSA_OPERATOR(expert_linear)});
  }
  needs.add(kBlock, {c.moe.biased ? DSA_OPERATOR(alpha_swiglu) : DSA_OPERATOR(activation),
                     DSA_OPERATOR(expert_combine)});
  if (c.moe.latent_norm) needs.add(kBlock, {DSA_OPERATOR(rms_norm)});
  if (!c.moe.biased)
    needs.add("shared expert", {DSA_OPERATOR(linear), DSA_OPERATOR(activation), DSA_OPERATOR(add)});
}

void add_tower(const VisionConfig& v, Needs& needs) {
  constexpr const char* kBlock = "vision tower";
  needs.add(kBlock, {DSA_OPERATOR(linear)});
  if (v.table_rows > 0) needs.add(kBlock, {DSA_OPERATOR(grid_embedding)});
  if (v.biases || v.projector_dim > 0) needs.add(kBlock, {DSA_OPERATOR(add_bias)});
  needs.add(kBlock, {DSA_OPERATOR(rms_norm), DSA_OPERATOR(head_linear)});
  if (v.gated) needs.add(kBlock, {DSA_OPERATOR(head_norm), DSA_OPERATOR(activation)});
  needs.add(kBlock, {DSA_OPERATOR(rope_2d), DSA_OPERATOR(vision_attention), DSA_OPERATOR(add),
                     DSA_OPERATOR(gelu), DSA_OPERATOR(gather_rows)});
  if (v.projector_dim > 0) needs.add(kBlock, {DSA_OPERATOR(layer_norm)});
}

}  // namespace

std::vector<OperatorNeed> operators_of(const ModelConfig& c, const WeightSurvey& survey, bool fp8_workspace) {
  Needs needs;
  needs.add("embedding", {DSA_OPERATOR(embedding)});
  if (c.vision.layers > 0) needs.add("pictures", {DSA_OPERATOR(place_rows)});
  add_residuals(c, needs);
  needs.add("layers", {DSA_OPERATOR(rms_norm)});
  for (const LayerConfig& layer : c.layers) {
    add_attention(c, layer, needs);
    if (layer.moe)
      add_experts(c, survey, fp8_workspace, needs);
    else
      needs.add("dense layers", {DSA_OPERATOR(linear), DSA_OPERATOR(activation)});
  }
  needs.add("output", {DSA_OPERATOR(gather_rows), DSA_OPERATOR(rms_norm), DSA_OPERATOR(linear)});
  if (c.vision.layers > 0) add_tower(c.vision, needs);
  return needs.take();
}

}  // namespace dsa
