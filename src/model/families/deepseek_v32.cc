// model/families/deepseek_v32.cc: DeepSeek-V3.2 (Exp, final, Speciale): latent attention with an indexer in every layer.
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

Status parse(const JsonFields& config, ModelConfig& out) {
  DSA_TRY(parse_sparse_decoder(config, {}, false, out));
  for (LayerConfig& layer : out.layers) layer.indexer = IndexerKind::full;
  return Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  return load_plain_decoder(loader, c, kProjExperts, out);
}

}  // namespace

const Family& deepseek_v32_family() {
  static const Family& family =
      *new Family{"deepseek_v32", {"DeepseekV32ForCausalLM"}, parse, nullptr, load, &kProjExperts};
  return family;
}

}  // namespace dsa
