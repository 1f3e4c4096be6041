#include "engine/prompt.h"

#include <iterator>

#include "text/chat_json.h"
#include "text/utf8_stream.h"

namespace dsa {
namespace {

constexpr size_t kMaxBytes = size_t(64) << 20;
constexpr size_t kMaxTokens = size_t(1) << 24;

}  // namespace

void Prompt::clear() { *this = Prompt(); }

void Prompt::begin_message(Role role) { messages_.emplace_back().role = role; }

Status Prompt::add_text(std::string_view text, MessagePart::Kind kind) {
  if (messages_.empty()) return error(Code::state, "no message was begun").with_fix(Fix::input);
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    return error(Code::utf8, "the text is not UTF-8 at byte ", at).with_fix(Fix::input).with_position(at);
  if (text.size() > kMaxBytes - bytes_)
    return error(Code::limit, "the prompt would have ", bytes_ + text.size(), " bytes of text, at most ",
                 kMaxBytes)
        .with_fix(Fix::shorten)
        .with_room(bytes_ + text.size(), kMaxBytes);
  MessagePart part;
  part.kind = kind;
  part.text = text;
  messages_.back().parts.push_back(std::move(part));
  bytes_ += text.size();
  return Status::ok();
}

Status Prompt::add_tokens(std::span<const TokenId> tokens) {
  if (tokens.size() > kMaxTokens - tokens_)
    return error(Code::limit, "the prompt would have ", tokens_ + tokens.size(), " raw tokens, at most ",
                 kMaxTokens)
        .with_fix(Fix::shorten)
        .with_room(tokens_ + tokens.size(), kMaxTokens);
  if (messages_.empty()) {
    raw_.insert(raw_.end(), tokens.begin(), tokens.end());
  } else {
    MessagePart part;
    part.kind = MessagePart::Kind::tokens;
    part.tokens.assign(tokens.begin(), tokens.end());
    messages_.back().parts.push_back(std::move(part));
  }
  tokens_ += tokens.size();
  return Status::ok();
}

Status Prompt::add_json(std::string_view text) {
  if (text.size() > kMaxBytes - bytes_)
    return error(Code::limit, "the prompt would have ", bytes_ + text.size(), " bytes of text, at most ",
                 kMaxBytes)
        .with_fix(Fix::shorten)
        .with_room(bytes_ + text.size(), kMaxBytes);
  DSA_ASSIGN(std::vector<Message> messages, messages_from_json(text));
  messages_.reserve(messages_.size() + messages.size());
  std::move(messages.begin(), messages.end(), std::back_inserter(messages_));
  bytes_ += text.size();
  return Status::ok();
}

}  // namespace dsa
