// text/kimi_k2_format.h: the chat format of Kimi K2, which Kimi-Linear uses.
//
//   <|im_system|>tool_declare<|im_middle|>[{...}]<|im_end|>
//   <|im_system|>system<|im_middle|>Be short.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>
//   <|im_assistant|>assistant<|im_middle|>Hello.<|tool_calls_section_begin|>
//     <|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
//     <|tool_calls_section_end|><|im_end|>
//   <|im_system|>tool<|im_middle|>## Return of functions.add:0
//   2<|im_end|>
//
// Written without line feeds but that one. Reasoning is <think>...</think> in front of an answer where the
// vocabulary has these tokens. If the package's template inserts a system message into conversations without
// one, so do we.
#pragma once

#include "text/chat_format.h"

namespace dsa {

class KimiK2Format : public ChatFormat {
 public:
  static Result<std::shared_ptr<const ChatFormat>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template);

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override;
  bool has_tools() const override { return markers_.call_begin >= 0; }
  std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools) const override;
  std::vector<TokenId> stop_tokens() const override;

  struct Markers {
    TokenId user, assistant, system, middle, end;
    TokenId end_of_text;                                                        // -1: none
    TokenId section_begin, section_end, call_begin, arguments_begin, call_end;  // all or none: -1
    TokenId think, end_think;                                                   // both or none: -1
  };

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string default_system_;
  Markers markers_ = {};
};

}  // namespace dsa
