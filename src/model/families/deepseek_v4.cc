// model/families/deepseek_v4.cc: known, and refused with what it would need.
#include "model/families/families.h"

namespace dsa {
namespace {

Status parse(const JsonFields& config, ModelConfig&) {
  return error(
      Code::unsupported, config.where(),
      ": deepseek_v4 needs blocks that are missing: attention with one shared 512-wide key and value head "
      "and a sliding window beside compressed entries, the compressors of ratio 4 and 128 that make "
      "those entries, rotary lanes that are turned back on the output, a grouped low-rank output "
      "projection, a router of sqrt(softplus) scores with token-id tables in its first layers, and a "
      "learned mixer behind the hyper-connections");
}

Status load(WeightLoader&, const ModelConfig& c, DecoderWeights&) {
  return error(Code::unsupported, c.architecture, " is not supported");
}

}  // namespace

const Family& deepseek_v4_family() {
  static const Family& family =
      *new Family{"deepseek_v4", {"DeepseekV4ForCausalLM"}, parse, nullptr, load, nullptr};
  return family;
}

}  // namespace dsa
