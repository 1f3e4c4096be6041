// text/kimi_k3_format.h: the chat format of Kimi K3 ("XTML"): elements of control tokens and names in ordinary text.
//
//   <|open|>message role="user"<|sep|>Hello.<|close|>message<|sep|><|end_of_msg|>
//   <|open|>message role="assistant"<|sep|><|open|>think<|sep|>...<|close|>think<|sep|>
//     <|open|>response<|sep|>Hi!<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>
//
// Tools are declared in a system message of type tool-declare. Calls stand behind the response, each argument with
// its type; what is no string is JSON:
//
//   <|open|>tools<|sep|><|open|>call tool="add" index="1"<|sep|>
//     <|open|>argument key="a" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
//
// A picture within a message:
//
//   <|media_begin|>image 640x480<|media_content|><|media_pad|>...<|media_pad|><|media_end|>
//
// Written without line feeds. Every name, attribute and content is encoded by itself, so no token spans two of them.
#pragma once

#include <initializer_list>

#include "text/chat_format.h"

namespace dsa {

class KimiK3Format : public ChatFormat {
 public:
  static Result<std::shared_ptr<const ChatFormat>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template = {});

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override;
  TokenId image_token() const override { return markers_.media_pad; }
  bool has_tools() const override { return true; }
  std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools = {}) const override;
  // <|end_of_msg|>, and [EOS] where the vocabulary has it.
  std::vector<TokenId> stop_tokens() const override;

  struct Markers {
    TokenId open, close, sep, end_of_message;
    TokenId end_of_text;                                       // -1 if the vocabulary has none
    TokenId media_begin, media_content, media_pad, media_end;  // all or none: -1
  };

 private:
  struct Attribute {
    std::string_view key;
    std::string value;
  };

  Status append_open(std::vector<TokenId>& ids, std::string_view tag,
                     std::initializer_list<Attribute> attributes) const;
  Status append_close(std::vector<TokenId>& ids, std::string_view tag) const;
  Status append_text(std::vector<TokenId>& ids, std::string_view text) const;
  Status append_part(RenderedChat& chat, const MessagePart& part, std::span<const ImageSlot> images) const;
  Status append_image(RenderedChat& chat, const MessagePart& part, std::span<const ImageSlot> images) const;
  Status append_note(std::vector<TokenId>& ids, std::string_view type, std::string_view text) const;
  Status append_message(RenderedChat& chat, const Message& message, const std::string& tool,
                        std::span<const ImageSlot> images, int result_index, bool thinking) const;
  Status append_calls(std::vector<TokenId>& ids, const std::vector<ToolCall>& calls) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  Markers markers_ = {};
};

}  // namespace dsa
