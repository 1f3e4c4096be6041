// text/tiktoken_file.h: tokenizers whose vocabulary is a tiktoken file: one "base64(bytes) rank" a line.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace dsa {

// The file says neither how text is cut nor what the control tokens are called, so it is its name that decides:
//
//   tiktoken.model        Kimi: its pattern, 256 slots for control tokens behind the ranks
//   o200k_base.tiktoken   gpt-oss: the pattern of o200k
//
// Names of control tokens come from added_tokens_decoder in tokenizer_config.json (`config`); a slot without one is
// called <|reserved_token_ID|>. Another name is Code::unsupported, damage Code::corrupt, contradictions Code::model.
Result<std::shared_ptr<const Tokenizer>> read_tiktoken(std::string_view bytes, const std::string& where,
                                                       std::string_view config,
                                                       const std::string& config_where);

}  // namespace dsa
