// model/families/glm_moe_dsa.cc: GLM-5, 5.1 and 5.2: DeepSeek-V3.2's block with other sizes, all rotary lanes in pairs, and,
// in 5.2, layers that share the selection of an earlier layer.
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_TRY(parse_sparse_decoder(config,
                               {"index_share_for_mtp_iteration", "index_skip_topk_offset", "index_topk_freq",
                                "index_topk_pattern", "indexer_types", "mlp_layer_types", "moe_router_dtype"},
                               true, out));
  DSA_TRY(parse_index_sharing(config, out));
  return Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  return load_plain_decoder(loader, c, kProjExperts, out);
}

}  // namespace

const Family& glm_moe_dsa_family() {
  static const Family& family =
      *new Family{"glm_moe_dsa", {"GlmMoeDsaForCausalLM"}, parse, nullptr, load, &kProjExperts};
  return family;
}

}  // namespace dsa
