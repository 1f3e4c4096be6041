#include "text/chat_format.h"

#include "text/deepseek_format.h"
#include "text/glm_format.h"
#include "text/harmony_format.h"
#include "text/kimi_k2_format.h"
#include "text/kimi_k3_format.h"

namespace dsa {

Result<std::shared_ptr<const ChatFormat>> ChatFormat::create(const std::string& family,
                                                             std::shared_ptr<const Tokenizer> tokenizer,
                                                             std::string_view chat_template) {
  if (family == "kimi_k3" || family == "kimi_k31")
    return KimiK3Format::create(std::move(tokenizer), chat_template);
  if (family == "kimi_linear") return KimiK2Format::create(std::move(tokenizer), chat_template);
  if (family == "glm5_next") return GlmFormat::create(std::move(tokenizer), chat_template, true);
  if (family == "glm_moe_dsa") return GlmFormat::create(std::move(tokenizer), chat_template, false);
  if (family == "deepseek_v32") return DeepseekFormat::create(std::move(tokenizer), chat_template);
  if (family == "gpt_oss") return HarmonyFormat::create(std::move(tokenizer), chat_template);
  return error(Code::unsupported, "no chat format is known for the family '", family, "'");
}

}  // namespace dsa
