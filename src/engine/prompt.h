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
  // [{"role": "user", "content": "..."}], or {"messages": [...]}.
  Status add_json(std::string_view json);
  // Gives a picture to the image parts of chat JSON with that name, before or after they are added.
  Status bind_image(std::string_view name, std::shared_ptr<const Picture> picture);
  // Code::argument if an image part has no picture, or a bound picture no part.
  Status check_images() const;

  bool is_empty() const { return raw_.empty() && messages_.empty(); }
  const std::vector<TokenId>& raw() const { return raw_; }
  const std::vector<Message>& messages() const { return messages_; }
  // What the image parts count in.
  const std::vector<std::shared_ptr<const Picture>>& pictures() const { return pictures_; }

 private:
  std::vector<TokenId> raw_;
  Result<int> take(std::shared_ptr<const Picture> picture);
  void name_images();

  std::vector<Message> messages_;
  std::vector<std::shared_ptr<const Picture>> pictures_;
  std::map<std::string, int, std::less<>> names_;
  size_t bytes_ = 0, tokens_ = 0;
};

}  // namespace dsa
