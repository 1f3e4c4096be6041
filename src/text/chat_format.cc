#include "text/chat_format.h"

#include "text/kimi_k3_format.h"

namespace dsa {

Result<std::shared_ptr<const ChatFormat>> ChatFormat::create(const std::string& family,
                                                             std::shared_ptr<const Tokenizer> tokenizer) {
  if (family == "kimi_k3" || family == "kimi_k31") return KimiK3Format::create(std::move(tokenizer));
  return error(Code::unsupported, "no chat format is known for the family '", family, "'");
}

}  // namespace dsa
