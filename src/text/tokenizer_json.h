// text/tokenizer_json.h: tokenizer.json files with byte-level BPE.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace dsa {

// What the file may say: model BPE without dropout, unknown token and affixes; a pre_tokenizer of Split patterns that
// isolate their matches, and ByteLevel; a ByteLevel decoder; no normalizer. Anything else would need other code or
// could not give every text back, and is Code::unsupported by name. All added tokens are control tokens, also those
// that the file does not call special: K3's <|open|> and GLM's <think> are such. The post_processor is not read: what
// stands in front of a prompt is the chat format's affair. A wrong shape is Code::model, with the path.
Result<std::shared_ptr<const Tokenizer>> read_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace dsa
