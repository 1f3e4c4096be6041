// model/families/glm_vision.cc: the vision part of GLM-5.3-Flash: gated blocks with norms of queries and keys, and a
// downsampling product before a gated projector.
#include <algorithm>
#include <cmath>

#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

constexpr int64_t kFrames = 2;  // of a patch; a picture is the same frame twice
constexpr double kTheta = 10000;
constexpr float kMergeNormEps = 1e-5f;                 // a LayerNorm without an eps argument
constexpr int64_t kTokensMin = 16, kTokensMax = 8000;  // of a picture; the image processor's own
constexpr float kMean[3] = {0.48145466f, 0.4578275f, 0.40821073f},
                kStd[3] = {0.26862954f, 0.26130258f, 0.27577711f};

}  // namespace

Status parse_glm_vision(const JsonFields& config, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields vision, config.object("vision_config"));
  DSA_TRY(refuse_unknown_keys(
      vision,
      {"attention_bias", "depth", "hidden_act", "hidden_size", "image_size", "in_channels",
       "intermediate_size", "num_heads", "out_hidden_size", "patch_size", "projection_intermediate_size",
       "rms_norm_eps", "rope_parameters", "spatial_merge_size", "swiglu_limit", "temporal_patch_size"}));
  VisionConfig& v = out.vision;
  DSA_ASSIGN(v.layers, vision.integer("depth", 1, 4096));
  DSA_ASSIGN(v.hidden, vision.integer("hidden_size", 1, 1 << 16));
  DSA_ASSIGN(v.heads, vision.integer("num_heads", 1, 1 << 12));
  if (v.hidden % v.heads != 0 || v.hidden / v.heads % 4 != 0 || v.hidden / v.heads > kVisionHeadDimMax)
    return error(Code::unsupported, vision.where(), ": 'hidden_size' is ", v.hidden, " for ", v.heads,
                 " heads, expected a multiple of 4 up to ", kVisionHeadDimMax, " for each");
  v.head_dim = v.hidden / v.heads;
  DSA_ASSIGN(v.mlp_dim, vision.integer("intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(v.projector_dim, vision.integer("projection_intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(v.patch, vision.integer("patch_size", 1, 256));
  DSA_ASSIGN(v.merge, vision.integer("spatial_merge_size", 1, 16));
  DSA_TRY(expect_equal(vision, "temporal_patch_size", kFrames, "that of the family"));
  DSA_TRY(expect_equal(vision, "in_channels", 3, "a picture"));
  DSA_TRY(expect_equal(vision, "out_hidden_size", out.hidden, "'hidden_size' of the text"));
  DSA_ASSIGN(const double eps, number_within(vision, "rms_norm_eps", 0, 1));
  v.norm_eps = float(eps);
  v.projector_eps = kMergeNormEps;

  DSA_ASSIGN(const std::string act, vision.string("hidden_act"));
  DSA_TRY(expect_string(vision, "hidden_act", "silu"));
  DSA_ASSIGN(const double limit, number_within(vision, "swiglu_limit", 0, 1e6, 10));
  v.gated = true;
  v.activation = {.kind = ActivationKind::swiglu, .limit = float(limit)};
  v.rope = Rope2dKind::halves;
  if (vision.has("rope_parameters")) {
    DSA_ASSIGN(const JsonFields rope, vision.object("rope_parameters"));
    DSA_TRY(refuse_unknown_keys(rope, {"rope_theta", "rope_type"}));
    DSA_TRY(expect_string(rope, "rope_type", "axial"));
    DSA_ASSIGN(const double theta, rope.number("rope_theta"));
    if (theta != kTheta)
      return error(Code::unsupported, rope.where(), ": 'rope_theta' is ", theta, ", expected ", kTheta);
  }

  const int64_t area = int64_t(v.patch) * v.merge * v.patch * v.merge;
  v.rule = PictureRule::area_range;
  v.area_min = kTokensMin * area;
  v.area_max = kTokensMax * area;
  std::copy(kMean, kMean + 3, v.mean);
  std::copy(kStd, kStd + 3, v.std);
  DSA_ASSIGN(const int64_t side, vision.integer_or("image_size", 336, 1, kMaxDim));
  (void)side;  // of training
  DSA_ASSIGN(v.biases, vision.boolean_or("attention_bias", true));
  return Status::ok();
}

Status parse_glm_preprocessor(const JsonFields& preprocessor, ModelConfig& out) {
  VisionConfig& v = out.vision;
  for (const auto& [key, expected] :
       {std::pair{"patch_size", int64_t(v.patch)}, std::pair{"temporal_patch_size", kFrames},
        std::pair{"merge_size", int64_t(v.merge)}})
    if (preprocessor.has(key)) DSA_TRY(expect_equal(preprocessor, key, expected, "config.json"));
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    DSA_TRY(expect_boolean(preprocessor, key, true, true));
  if (preprocessor.has("image_mean")) DSA_TRY(three_numbers(preprocessor, "image_mean", v.mean));
  if (preprocessor.has("image_std")) DSA_TRY(three_numbers(preprocessor, "image_std", v.std));
  if (!(std::min({v.std[0], v.std[1], v.std[2]}) > 0))
    return error(Code::model, preprocessor.where(), ": 'image_std' holds ",
                 std::min({v.std[0], v.std[1], v.std[2]}), ", expected positive numbers");
  if (!preprocessor.has("size")) return Status::ok();
  // Both areas count the frames of a patch.
  DSA_ASSIGN(const JsonFields size, preprocessor.object("size"));
  DSA_ASSIGN(const int64_t least, size.integer("shortest_edge", 1, INT32_MAX));
  DSA_ASSIGN(const int64_t most, size.integer("longest_edge", least, INT32_MAX));
  v.area_min = (least + kFrames - 1) / kFrames;
  v.area_max = most / kFrames;
  return Status::ok();
}

namespace {

// A bias is there or not as the config says.
Status load_bias(WeightLoader& loader, const std::string& name, int64_t size, bool biases, Tensor& out) {
  DSA_TRY(loader.expect(name, biases, biases ? "'attention_bias' is true" : "'attention_bias' is false"));
  return biases ? loader.vector(name, {size}, out) : Status::ok();
}

Status load_block(WeightLoader& loader, const std::string& block, const VisionConfig& v,
                  VisionBlockWeights& out) {
  const int64_t hidden = v.hidden;
  DSA_TRY(loader.vector(block + "norm1.weight", {hidden}, out.norm0));
  DSA_TRY(loader.vector(block + "norm2.weight", {hidden}, out.norm1));
  DSA_TRY(loader.plain_matrix(block + "attn.qkv.weight", {3 * hidden, hidden}, out.qkv));
  out.qkv = out.qkv.reshape({3 * int64_t(v.heads), v.head_dim, hidden});
  DSA_TRY(load_bias(loader, block + "attn.qkv.bias", 3 * hidden, v.biases, out.qkv_bias));
  DSA_TRY(loader.vector(block + "attn.q_norm.weight", {v.head_dim}, out.q_norm));
  DSA_TRY(loader.vector(block + "attn.k_norm.weight", {v.head_dim}, out.k_norm));
  DSA_TRY(loader.matrix(block + "attn.proj.weight", {hidden, hidden}, out.o));
  DSA_TRY(load_bias(loader, block + "attn.proj.bias", hidden, v.biases, out.o_bias));
  DSA_TRY(loader.matrix(block + "mlp.gate_proj.weight", {v.mlp_dim, hidden}, out.fc0));
  DSA_TRY(load_bias(loader, block + "mlp.gate_proj.bias", v.mlp_dim, v.biases, out.fc0_bias));
  DSA_TRY(loader.matrix(block + "mlp.up_proj.weight", {v.mlp_dim, hidden}, out.up));
  DSA_TRY(load_bias(loader, block + "mlp.up_proj.bias", v.mlp_dim, v.biases, out.up_bias));
  DSA_TRY(loader.matrix(block + "mlp.down_proj.weight", {hidden, v.mlp_dim}, out.fc1));
  return load_bias(loader, block + "mlp.down_proj.bias", hidden, v.biases, out.fc1_bias);
}

// [hidden, 3, frames, patch, patch]: both frames are the same picture, so their weights add up.
Status load_patch(WeightLoader& loader, const VisionConfig& v, Tensor& out) {
  const int64_t square = int64_t(v.patch) * v.patch, columns = 3 * square;
  Tensor stored;
  DSA_TRY(loader.vector("patch_embed.proj.weight", {v.hidden, 3, kFrames, v.patch, v.patch}, stored));
  out = Tensor(loader.own(size_t(v.hidden * columns)), DType::f32, {v.hidden, columns});
  if (out.is_null()) return Status::ok();
  for (int64_t row = 0; row < 3 * v.hidden; ++row)
    for (int64_t i = 0; i < square; ++i)
      out.f32()[row * square + i] =
          stored.f32()[row * kFrames * square + i] + stored.f32()[(row * kFrames + 1) * square + i];
  return Status::ok();
}

// [out, hidden, merge, merge]: in the order of merged patches, which lie one after the other.
Status load_downsample(WeightLoader& loader, const VisionConfig& v, int64_t rows, Tensor& out) {
  const int64_t hidden = v.hidden, patches = int64_t(v.merge) * v.merge;
  Tensor stored;
  DSA_TRY(loader.vector("downsample.weight", {rows, hidden, v.merge, v.merge}, stored));
  out = Tensor(loader.own(size_t(rows * hidden * patches)), DType::f32, {rows, hidden * patches});
  if (out.is_null()) return Status::ok();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < hidden; ++c)
      for (int64_t p = 0; p < patches; ++p)
        out.f32()[(r * patches + p) * hidden + c] = stored.f32()[(r * hidden + c) * patches + p];
  return Status::ok();
}

}  // namespace

Status load_glm_vision(const WeightLoader& text, const ModelConfig& c, VisionWeights& out) {
  const VisionConfig& v = c.vision;
  WeightLoader loader = text.with_prefix("model.visual.");
  DSA_TRY(load_patch(loader, v, out.patch));
  DSA_TRY(loader.vector("patch_embed.proj.bias", {v.hidden}, out.patch_bias));
  out.blocks.resize(size_t(v.layers));
  for (size_t l = 0; l < out.blocks.size(); ++l)
    DSA_TRY(load_block(loader, concat("blocks.", l, "."), v, out.blocks[l]));
  DSA_TRY(loader.vector("post_layernorm.weight", {v.hidden}, out.final_norm));

  DSA_TRY(load_downsample(loader, v, c.hidden, out.downsample));
  DSA_TRY(loader.vector("downsample.bias", {c.hidden}, out.downsample_bias));
  DSA_TRY(loader.matrix("merger.proj.weight", {c.hidden, c.hidden}, out.merge_proj));
  DSA_TRY(loader.vector("merger.post_projection_norm.weight", {c.hidden}, out.merge_norm));
  DSA_TRY(loader.vector("merger.post_projection_norm.bias", {c.hidden}, out.merge_norm_bias));
  return load_mlp(loader, "merger.", c.hidden, v.projector_dim, out.merge_mlp);
}

}  // namespace dsa
