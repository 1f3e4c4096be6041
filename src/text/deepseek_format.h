// text/deepseek_format.h: the chat formats of DeepSeek V3.1 and V3.2. They differ in how tools are written.
//
//   <｜begin▁of▁sentence｜>Be short.<｜User｜>Hi<｜Assistant｜></think>Hello.<｜end▁of▁sentence｜>
//   <｜User｜>2 + 2?<｜Assistant｜><think>
//
// V3.2, whose packages have no template: declarations behind the first system message, calls and results as in dsml.h.
//
// V3.1, and V3.2-Exp, by their template: calls, where the vocabulary has their tokens, stand behind the text of an answer,
// results behind its end. This format has no place for declarations of tools: hosts write them into the system message.
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//   <｜tool▁output▁begin｜>2<｜tool▁output▁end｜>
//
// The reasoning of earlier turns is left out, as the vendor does, and kept within a turn that calls tools.
#pragma once

#include "text/chat_format.h"
#include "text/dsml.h"

namespace dsa {

class DeepseekFormat : public ChatFormat {
 public:
  static Result<std::shared_ptr<const ChatFormat>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                          std::string_view chat_template);

  using ChatFormat::render;
  Result<RenderedChat> render(const std::vector<Message>& messages, std::span<const ImageSlot> images,
                              const ChatOptions& options) const override;
  bool has_tools() const override { return writes_dsml_; }
  std::unique_ptr<AnswerReader> reader(bool in_reasoning, std::span<const Tool> tools) const override;
  std::vector<TokenId> stop_tokens() const override { return {markers_.end}; }

  struct Markers {
    TokenId begin, end, user, assistant, think, end_think;
    TokenId calls, end_calls, call, separator, end_call, output, end_output;  // all or none: -1
  };

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  Markers markers_ = {};
  DsmlMarkers dsml_ = {};
  bool writes_dsml_ = false;
};

}  // namespace dsa
