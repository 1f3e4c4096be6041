// text/chat_writer.h: what the chat formats share: putting a prompt together, and knowing calls by their ids.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.h"

namespace dsa {

// Writes control tokens and text in turn. Text between two control tokens is encoded in one piece, as the vendors'
// templates are; control tokens that it spells stay text. The first failure is kept until finish() and names its
// message.
class ChatWriter {
 public:
  explicit ChatWriter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void begin_message(size_t index) { message_ = index; }
  void control(TokenId id);
  void text(std::string_view text) { pending_ += text; }
  void markup(std::string_view text);  // our own: names of control tokens act
  // A message's own parts; `image` writes a picture that has a slot.
  using WriteImage = std::function<void(const MessagePart& part)>;
  void parts(const Message& message, const WriteImage& image = {});
  void image(int index, TokenId token, int count);
  void fail(Status status);
  Result<RenderedChat> finish();

 private:
  void flush();

  const Tokenizer& tokenizer_;
  RenderedChat chat_;
  std::string pending_;
  size_t message_ = size_t(-1);
  Status failure_;
};

// A control token that a format cannot do without.
Result<TokenId> require_control(const Tokenizer& tokenizer, std::string_view name);

// Fails if a package's template lacks one of `marks` or has one of `foreign`; an empty template is none.
Status check_template(std::string_view chat_template, const char* format,
                      std::initializer_list<std::string_view> marks,
                      std::initializer_list<std::string_view> foreign);

// The messages in the order in which they are written: results of tools, where a run of them can be matched with the
// calls of the answer before, in the order of those calls.
std::vector<const Message*> in_call_order(const std::vector<Message>& messages,
                                          std::span<const ToolCall> calls);

// The name of the tool that a result is of: its own, or that of the call with its id; empty if there is none.
std::string tool_name_of(const Message& result, const std::vector<Message>& messages,
                         std::span<const ToolCall> calls);

// Without space around it.
std::string_view trimmed(std::string_view text);

}  // namespace dsa
