// tests/fuzz/promises.h: what every tokenizer promises, whatever file it came from.
#pragma once

#include <string>

#include "fuzz.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace dsa::fuzz {

// `may_give_up`: a hostile pattern may take too long for a text, which is Code::limit.
inline void require_tokenizer(const Tokenizer& tokenizer, std::string_view hostile, bool may_give_up) {
  for (const std::string& text :
       {std::string("The fox\n  <|open|> ▁ \0 🦊 12", 29), std::string(hostile)}) {
    const auto ids = tokenizer.encode(text);
    const bool gave_up = may_give_up && ids.status().code() == Code::limit;
    require(ids.is_ok() == (find_invalid_utf8(text) == std::string_view::npos) || gave_up,
            "text is encoded if it is UTF-8");
    if (!ids.is_ok()) continue;
    std::string decoded;
    for (const TokenId id : ids.value()) {
      require(!tokenizer.is_control(id), "text makes no control token");
      decoded += tokenizer.bytes(id);
    }
    require(decoded == text, "text comes back byte for byte");
    const auto markup = tokenizer.encode_markup(text);
    require(markup.is_ok() || (may_give_up && markup.status().code() == Code::limit),
            "markup is encoded as well");
  }
}

}  // namespace dsa::fuzz
