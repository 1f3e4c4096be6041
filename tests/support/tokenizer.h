// tests/support/tokenizer.h: the small tokenizer of the tests.
#pragma once

#include <stdexcept>

#include "text/tokenizer.h"

namespace dsa::test {

inline std::shared_ptr<const Tokenizer> tokenizer() {
  auto loaded = Tokenizer::load(DSA_SOURCE_DIR "/tests/support/tokenizer");
  if (!loaded.is_ok()) throw std::runtime_error(loaded.status().message());
  return loaded.value();
}

// The text of all tokens; control tokens add nothing.
inline std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.bytes(id);
  return text;
}

// One piece a token, parted by '|'; control tokens by name.
inline std::string spell(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) {
    if (!text.empty()) text += '|';
    text += tokenizer.is_control(id) ? tokenizer.control_name(id) : tokenizer.bytes(id);
  }
  return text;
}

}  // namespace dsa::test
