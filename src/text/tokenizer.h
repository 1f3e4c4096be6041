// text/tokenizer.h: text to tokens and back. Control tokens come only from names that our own code asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dsa {

using TokenId = int32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Opens the tokenizer of a package folder: tokenizer.model (SentencePiece), or tiktoken.model or a *.tiktoken file,
  // whose ids are the vendor's where a converted tokenizer.json may close gaps, or tokenizer.json. Code::not_found if
  // the folder has none of them.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& folder);

  virtual int vocab_size() const = 0;
  // Ordinary text: whatever it spells, no control token comes out. Code::utf8 with the position if it is not UTF-8.
  virtual Result<std::vector<TokenId>> encode(std::string_view text) const = 0;
  // Text that our host wrote itself: names of control tokens in it become those tokens.
  virtual Result<std::vector<TokenId>> encode_markup(std::string_view text) const = 0;
  // The bytes of one token; empty for control tokens and for ids that stand for nothing.
  virtual std::string_view bytes(TokenId id) const = 0;
  virtual bool is_control(TokenId id) const = 0;
  // "<|open|>" and the like; empty for others.
  virtual std::string_view control_name(TokenId id) const = 0;
  virtual std::optional<TokenId> control_id(std::string_view name) const = 0;
};

// Code::utf8 with the position of the first byte that is not UTF-8.
Status check_utf8(std::string_view text);

}  // namespace dsa
