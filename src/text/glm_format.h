// text/glm_format.h: the chat format of GLM-5 and its successors.
//
//   [gMASK]<sop><|system|>Reasoning Effort: Max<|system|>Be short.<|user|>Hi
//   <|assistant|><think>...</think>Hello.<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
//   <|observation|><tool_response>2</tool_response><|assistant|><think>
//
// Written without line feeds. A turn has no end of its own: the next one's first token ends it, and is not kept with
// it. A picture is <|begin_of_image|>, <|image|> for each of its tokens, <|end_of_image|>. The line about effort is
// written with thinking on, for glm5_next and wherever the package's template has it.
#pragma once

#include "text/chat_format.h"

namespace dsa {

class GlmFormat : public ChatFormat {
 public:
  // `tells_effort`: what holds without a template.
  static Result<std::shared_ptr<const ChatFormat>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template, bool tells_effort);

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override;
  TokenId image_token() const override { return markers_.image; }
  bool has_tools() const override { return true; }
  std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools) const override;
  std::vector<TokenId> stop_tokens() const override;

  struct Markers {
    TokenId mask, sop, system, user, assistant, observation, end_of_text;
    TokenId think, end_think, call, end_call, response, end_response;
    TokenId key, end_key, value, end_value;
    TokenId begin_image, image, end_image;  // all or none: -1
  };

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Markers markers_ = {};
  bool tells_effort_ = false;
};

}  // namespace dsa
