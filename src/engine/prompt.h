// engine/prompt.h: messages being put together by a host.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"

namespace dsa {

class Prompt {
 public:
  void clear();
  void begin_message(Role role);
  // Code::state if no message was begun, Code::utf8 with the position, Code::limit above 64 MiB in all.
  Status add_text(std::string_view text, MessagePart::Kind kind);
  // Before the first message: raw tokens that no template sees.
  Status add_tokens(std::span<const TokenId> tokens);
  // [{"role": "user", "content": "..."}], or {"messages": [...]}.
  Status add_json(std::string_view json);

  bool is_empty() const { return raw_.empty() && messages_.empty(); }
  const std::vector<TokenId>& raw() const { return raw_; }
  const std::vector<Message>& messages() const { return messages_; }

 private:
  std::vector<TokenId> raw_;
  std::vector<Message> messages_;
  size_t bytes_ = 0, tokens_ = 0;
};

}  // namespace dsa
