// text/harmony_format.h: the chat format of gpt-oss ("harmony"): messages with a role, a channel and a recipient.
//
//   <|start|>system<|message|>You are ChatGPT, ...<|end|>
//   <|start|>developer<|message|># Instructions ... # Tools ...<|end|><|start|>user<|message|>Hi<|end|>
//   <|start|>assistant<|channel|>analysis<|message|>...<|end|>
//   <|start|>assistant<|channel|>final<|message|>Hello.<|return|>
//
// analysis is reasoning, final the answer, commentary without a recipient answer too. A call, and its result:
//
//   <|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>
//   <|start|>functions.add to=assistant<|channel|>commentary<|message|>2<|end|>
//
// An answer ends with <|return|>; in the history <|end|> stands there. Reasoning of earlier turns is left out, that of
// a turn that still calls tools is kept. What hosts say as system stands in the developer's message; the system's own
// is written by the format, with today's date.
#pragma once

#include "text/chat_format.h"

namespace dsa {

class HarmonyFormat : public ChatFormat {
 public:
  static Result<std::shared_ptr<const ChatFormat>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template);

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override;
  bool has_tools() const override { return true; }
  std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools) const override;
  std::vector<TokenId> stop_tokens() const override;

  struct Markers {
    TokenId start, channel, constrain, message, end, final_end, call;
    TokenId end_of_text;  // -1: none
  };

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Markers markers_ = {};
};

}  // namespace dsa
