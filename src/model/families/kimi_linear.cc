// model/families/kimi_linear.cc: Kimi-Linear, the older sibling of K3: plain residuals, SwiGLU, experts of the full width,
// a KDA gate that is not bounded below.
#include "model/families/config_blocks.h"
#include "model/families/families.h"
#include "model/families/weight_blocks.h"

namespace dsa {
namespace {

Status parse(const JsonFields& config, ModelConfig& out) {
  out.residual = ResidualKind::plain;
  DSA_TRY(parse_kimi_decoder(config, "model_max_length", {"model_max_length"}, out));
  DSA_TRY(parse_linear_attention(config, 1, out));
  if (out.kda.gate_lower_bound != 0)
    return error(Code::unsupported, config.where(),
                 ": linear_attn_config: 'gate_lower_bound' is there, expected none for this family");
  DSA_TRY(parse_latent_attention(config, 1, true, out));
  DSA_TRY(expect_boolean(config, "mla_use_nope", false, true));  // rope_theta is there and unused
  DSA_ASSIGN(out.latent.output_gate, config.boolean_or("mla_use_output_gate", false));
  DSA_TRY(parse_swiglu(config, out));
  DSA_TRY(parse_kimi_experts(config, out));
  DSA_TRY(parse_quantization(config, out));
  DSA_TRY(parse_end_tokens(config, out));
  return Status::ok();
}

Status load(WeightLoader& loader, const ModelConfig& c, DecoderWeights& out) {
  return load_plain_decoder(loader, c, kKimiExperts, out);
}

}  // namespace

const Family& kimi_linear_family() {
  static const Family& family =
      *new Family{"kimi_linear", {"KimiLinearForCausalLM"}, parse, nullptr, load, &kKimiExperts};
  return family;
}

}  // namespace dsa
