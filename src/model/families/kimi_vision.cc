// model/families/kimi_vision.cc: the vision part of Kimi K3 and K3.1: MoonViT and its patch merger.
#include <algorithm>
#include <cmath>

#include "kernels/common/numbers.h"
#include "model/families/config_blocks.h"
#include "model/families/families.h"

namespace dsa {
namespace {

// The vendor builds the norms of the tower without an eps; PyTorch then takes that of f32 for every type.
constexpr float kTowerNormEps = 0x1p-23f;
constexpr int64_t kMaxSide = 1 << 12;  // patches along a side, entries of a side of the table
constexpr int64_t kMaxHeadDim = 256;   // what the attention kernels hold

Status expect(const JsonFields& fields, const char* key, const char* expected) {
  DSA_ASSIGN(const std::string found, fields.string(key));
  if (found == expected) return Status::ok();
  return error(Code::unsupported, fields.where(), ": '", key, "' is '", found, "', expected '", expected,
               "' for this family");
}

Status expect_false(const JsonFields& fields, const char* key) {
  DSA_ASSIGN(const bool found, fields.boolean_or(key, false));
  if (!found) return Status::ok();
  return error(Code::unsupported, fields.where(), ": '", key, "' is true, expected false for this family");
}

// A number, or a list of equal ones.
Result<int64_t> merge_of(const JsonFields& fields) {
  constexpr const char* kKey = "merge_kernel_size";
  if (!fields.has(kKey) || !fields.json().find(kKey)->is_array()) return fields.integer(kKey, 1, 16);
  DSA_ASSIGN(const std::vector<int64_t> sides, fields.integers(kKey, 1, 16));
  if (sides.size() != 2 || sides[0] != sides[1])
    return error(Code::unsupported, fields.where(), ": '", kKey, "' is ", fields.json()[kKey].dump(),
                 ", expected two equal numbers");
  return sides[0];
}

}  // namespace

Status parse_kimi_vision(const JsonFields& config, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields vision, config.object("vision_config"));
  VisionConfig& v = out.vision;
  DSA_ASSIGN(v.layers, vision.integer("vt_num_hidden_layers", 1, 4096));
  DSA_ASSIGN(v.hidden, vision.integer("vt_hidden_size", 1, 1 << 16));
  DSA_ASSIGN(v.heads, vision.integer("vt_num_attention_heads", 1, 1 << 12));
  DSA_ASSIGN(const int64_t qkv, vision.integer("qkv_hidden_size", 1, kMaxDim));
  if (qkv % v.heads != 0 || qkv / v.heads % 4 != 0 || qkv / v.heads > kMaxHeadDim)
    return error(Code::unsupported, vision.where(), ": 'qkv_hidden_size' is ", qkv, " for ", v.heads,
                 " heads, expected a multiple of 4 up to ", kMaxHeadDim, " for each");
  v.head_dim = int(qkv / v.heads);
  DSA_ASSIGN(v.mlp_dim, vision.integer("vt_intermediate_size", 1, kMaxDim));
  DSA_ASSIGN(v.table_rows, vision.integer("init_pos_emb_height", 1, kMaxSide));
  DSA_ASSIGN(v.table_columns, vision.integer("init_pos_emb_width", 1, kMaxSide));
  DSA_ASSIGN(v.patch, vision.integer("patch_size", 1, 256));
  DSA_ASSIGN(v.merge, merge_of(vision));
  v.norm_eps = kTowerNormEps;
  DSA_ASSIGN(const double eps, vision.number("projector_ln_eps"));
  if (!(eps > 0))
    return error(Code::model, vision.where(), ": 'projector_ln_eps' is ", eps,
                 ", expected a positive number");
  v.projector_eps = float(eps);

  DSA_TRY(expect(vision, "pos_emb_type", "divided_fixed"));
  DSA_TRY(expect(vision, "pos_emb_interpolation_mode", "bilinear"));
  DSA_TRY(expect(vision, "norm_type", "rmsnorm"));
  DSA_TRY(expect(vision, "mlp_type", "mlp2"));
  DSA_TRY(expect(vision, "activation_func", "gelu_pytorch_tanh"));
  DSA_TRY(expect(vision, "merge_type", "sd2_tpool"));
  DSA_TRY(expect(vision, "mm_projector_type", "patchmergerv2"));
  DSA_TRY(expect(vision, "projector_hidden_act", "gelu"));
  for (const char* key : {"attn_bias", "linear_bias", "patch_embed_proj_bias"})
    DSA_TRY(expect_false(vision, key));
  DSA_TRY(expect_equal(vision, "mm_hidden_size", v.hidden, "'vt_hidden_size'"));
  DSA_TRY(expect_equal(vision, "text_hidden_size", out.hidden, "'hidden_size' of the text"));
  return Status::ok();
}

Status parse_kimi_preprocessor(const JsonFields& preprocessor, ModelConfig& out) {
  DSA_ASSIGN(const JsonFields media, preprocessor.object("media_proc_cfg"));
  VisionConfig& v = out.vision;
  DSA_TRY(expect_equal(media, "patch_size", v.patch, "config.json"));
  DSA_ASSIGN(const int64_t merge, merge_of(media));
  if (merge != v.merge)
    return error(Code::model, media.where(), ": 'merge_kernel_size' is ", merge, ", expected ", v.merge,
                 " like config.json");
  DSA_ASSIGN(v.patch_limit, media.integer("in_patch_limit", 1, kMaxSide * kMaxSide));
  DSA_ASSIGN(v.side_limit, media.integer("patch_limit_on_one_side", 1, kMaxSide));
  DSA_TRY(three_numbers(media, "image_mean", v.mean));
  DSA_TRY(three_numbers(media, "image_std", v.std));
  if (!(std::min({v.std[0], v.std[1], v.std[2]}) > 0))
    return error(Code::model, media.where(), ": 'image_std' holds ", std::min({v.std[0], v.std[1], v.std[2]}),
                 ", expected positive numbers");
  if (media.has("fixed_output_tokens"))
    return error(Code::unsupported, media.where(), ": 'fixed_output_tokens' is ",
                 media.json()["fixed_output_tokens"].dump(), ", expected null for this family");
  return expect(media, "transparent_bg_fill_stage", "after_resize");
}

Status load_kimi_vision(const WeightLoader& text, const ModelConfig& c, VisionWeights& out) {
  const VisionConfig& v = c.vision;
  const int64_t hidden = v.hidden, heads = int64_t(v.heads) * v.head_dim, merged = v.merged();
  WeightLoader loader = text.with_prefix("vision_tower."), projector = text.with_prefix("mm_projector.");
  DSA_TRY(loader.matrix("patch_embed.proj.weight", {hidden, 3, v.patch, v.patch}, out.patch));
  DSA_TRY(
      loader.matrix("patch_embed.pos_emb.weight", {v.table_rows, v.table_columns, hidden}, out.positions));
  out.positions = out.positions.reshape({v.table_rows, v.table_columns, hidden});
  out.blocks.resize(size_t(v.layers));
  for (size_t l = 0; l < out.blocks.size(); ++l) {
    const std::string block = concat("encoder.blocks.", l, ".");
    VisionBlockWeights& w = out.blocks[l];
    DSA_TRY(loader.vector(block + "norm0.weight", {hidden}, w.norm0));
    DSA_TRY(loader.vector(block + "norm1.weight", {hidden}, w.norm1));
    DSA_TRY(loader.matrix(block + "wqkv.weight", {3 * heads, hidden}, w.qkv));
    w.qkv = w.qkv.reshape({3 * int64_t(v.heads), v.head_dim, hidden});
    DSA_TRY(loader.matrix(block + "wo.weight", {hidden, heads}, w.o));
    DSA_TRY(loader.matrix(block + "mlp.fc0.weight", {v.mlp_dim, hidden}, w.fc0));
    DSA_TRY(loader.matrix(block + "mlp.fc1.weight", {hidden, v.mlp_dim}, w.fc1));
  }
  DSA_TRY(loader.vector("encoder.final_layernorm.weight", {hidden}, out.final_norm));

  DSA_TRY(projector.matrix("proj.0.weight", {merged, merged}, out.proj0));
  DSA_TRY(projector.matrix("proj.2.weight", {c.hidden, merged}, out.proj2));
  return projector.vector("post_norm.weight", {c.hidden}, out.post);
}

}  // namespace dsa
