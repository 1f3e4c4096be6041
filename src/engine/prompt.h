// engine/prompt.h: messages being put together by a host, and the pictures in them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/picture.h"
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
  // At this place of the last message.
  Status add_image(std::shared_ptr<const Picture> picture);
  // Of the last message, which must be the assistant's: Code::state otherwise.
  Status add_reasoning(std::string_view text);
  Status add_call(std::string_view id, std::string_view name, std::string_view arguments);
  // A message of its own.
  Status add_result(std::string_view id, std::string_view text);
  // Replaces those that were set.
  Status set_tools(std::string_view json);
  // [{"role": "user", "content": "..."}], or {"messages": [...], "tools": [...]}.
  Status add_json(std::string_view json);
  // Gives a picture to the image parts of chat JSON with that name, before or after they are added.
  Status bind_image(std::string_view name, std::shared_ptr<const Picture> picture);
  // Code::argument if an image part has no picture, or a bound picture no part.
  Status check_images() const;

  bool is_empty() const { return raw_.empty() && messages_.empty() && tools_.empty(); }
  const std::vector<TokenId>& raw() const { return raw_; }
  const std::vector<Message>& messages() const { return messages_; }
  const std::vector<Tool>& tools() const { return tools_; }
  // What the image parts count in.
  const std::vector<std::shared_ptr<const Picture>>& pictures() const { return pictures_; }

 private:
  std::vector<TokenId> raw_;
  Status check_text(std::string_view text, const char* what) const;
  Status check_answer() const;
  Result<int> take(std::shared_ptr<const Picture> picture);
  void name_images();

  std::vector<Message> messages_;
  std::vector<Tool> tools_;
  std::vector<std::shared_ptr<const Picture>> pictures_;
  std::map<std::string, int, std::less<>> names_;
  size_t bytes_ = 0, tokens_ = 0;
};

}  // namespace dsa
