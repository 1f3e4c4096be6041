#include "engine/prompt.h"

#include <iterator>

#include "io/json.h"
#include "text/chat_json.h"
#include "text/utf8_stream.h"

namespace dsa {
namespace {

constexpr size_t kMaxBytes = size_t(64) << 20;
constexpr size_t kMaxTokens = size_t(1) << 24;
constexpr size_t kMaxPictures = 4096;

}  // namespace

void Prompt::clear() { *this = Prompt(); }

void Prompt::begin_message(Role role) { messages_.emplace_back().role = role; }

Status Prompt::check_text(std::string_view text, const char* what) const {
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    return error(Code::utf8, what, " is not UTF-8 at byte ", at).with_fix(Fix::input).with_position(at);
  if (text.size() > kMaxBytes - bytes_)
    return error(Code::limit, "the prompt would have ", bytes_ + text.size(), " bytes of text, at most ",
                 kMaxBytes)
        .with_fix(Fix::shorten)
        .with_room(bytes_ + text.size(), kMaxBytes);
  return Status::ok();
}

Status Prompt::add_text(std::string_view text, MessagePart::Kind kind) {
  if (messages_.empty()) return error(Code::state, "no message was begun").with_fix(Fix::input);
  DSA_TRY(check_text(text, "the text"));
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

Status Prompt::check_answer() const {
  if (!messages_.empty() && messages_.back().role == Role::assistant) return Status::ok();
  return error(Code::state, "no message of the assistant was begun").with_fix(Fix::input);
}

Status Prompt::add_reasoning(std::string_view text) {
  DSA_TRY(check_answer());
  DSA_TRY(check_text(text, "the text"));
  messages_.back().reasoning += text;
  bytes_ += text.size();
  return Status::ok();
}

Status Prompt::add_call(std::string_view id, std::string_view name, std::string_view arguments) {
  DSA_TRY(check_answer());
  DSA_TRY(check_text(id, "the id"));
  DSA_TRY(check_text(name, "the name"));
  DSA_TRY(check_text(arguments, "the arguments"));
  if (name.empty()) return error(Code::argument, "the name of a tool is empty").with_fix(Fix::input);
  DSA_TRY(check_arguments(arguments));
  ToolCall call;
  call.id = id;
  call.name = name;
  call.arguments = arguments;
  messages_.back().calls.push_back(std::move(call));
  bytes_ += arguments.size();
  return Status::ok();
}

Status Prompt::add_result(std::string_view id, std::string_view text) {
  DSA_TRY(check_text(id, "the id"));
  DSA_TRY(check_text(text, "the text"));
  if (id.empty()) return error(Code::argument, "the id of a call is empty").with_fix(Fix::input);
  Message message;
  message.role = Role::tool;
  message.call_id = id;
  message.parts.emplace_back().text = text;
  messages_.push_back(std::move(message));
  bytes_ += text.size();
  return Status::ok();
}

Status Prompt::set_tools(std::string_view json) {
  DSA_TRY(check_text(json, "the JSON"));
  DSA_ASSIGN(tools_, tools_from_json(json));
  return Status::ok();
}

Status Prompt::add_json(std::string_view text) {
  if (text.size() > kMaxBytes - bytes_)
    return error(Code::limit, "the prompt would have ", bytes_ + text.size(), " bytes of text, at most ",
                 kMaxBytes)
        .with_fix(Fix::shorten)
        .with_room(bytes_ + text.size(), kMaxBytes);
  DSA_ASSIGN(ChatJson chat, chat_from_json(text));
  messages_.reserve(messages_.size() + chat.messages.size());
  std::move(chat.messages.begin(), chat.messages.end(), std::back_inserter(messages_));
  if (!chat.tools.empty()) tools_ = std::move(chat.tools);
  bytes_ += text.size();
  name_images();
  return Status::ok();
}

Result<int> Prompt::take(std::shared_ptr<const Picture> picture) {
  if (pictures_.size() >= kMaxPictures)
    return error(Code::limit, "the prompt would have ", pictures_.size() + 1, " pictures, at most ",
                 kMaxPictures)
        .with_fix(Fix::shorten)
        .with_room(pictures_.size() + 1, kMaxPictures);
  pictures_.push_back(std::move(picture));
  return int(pictures_.size()) - 1;
}

Status Prompt::add_image(std::shared_ptr<const Picture> picture) {
  if (messages_.empty()) return error(Code::state, "no message was begun").with_fix(Fix::input);
  MessagePart part;
  part.kind = MessagePart::Kind::image;
  std::vector<MessagePart>& parts = messages_.back().parts;
  parts.reserve(parts.size() + 1);
  DSA_ASSIGN(part.image, take(std::move(picture)));
  parts.push_back(std::move(part));
  return Status::ok();
}

Status Prompt::bind_image(std::string_view name, std::shared_ptr<const Picture> picture) {
  if (name.empty()) return error(Code::argument, "the name of a picture is empty").with_fix(Fix::input);
  if (const size_t at = find_invalid_utf8(name); at != std::string_view::npos)
    return error(Code::utf8, "the name is not UTF-8 at byte ", at).with_fix(Fix::input).with_position(at);
  if (names_.contains(name))
    return error(Code::argument, "the name ", in_quotes(name), " has a picture already").with_fix(Fix::input);
  const auto at = names_.emplace(name, -1).first;
  auto image = take(std::move(picture));
  if (!image.is_ok()) {
    names_.erase(at);
    return image.status();
  }
  at->second = image.value();
  name_images();
  return Status::ok();
}

void Prompt::name_images() {
  for (Message& message : messages_)
    for (MessagePart& part : message.parts)
      if (part.kind == MessagePart::Kind::image && part.image < 0)
        if (const auto at = names_.find(part.text); at != names_.end()) part.image = at->second;
}

Status Prompt::check_images() const {
  std::vector<bool> used(pictures_.size());
  for (size_t m = 0; m < messages_.size(); ++m)
    for (const MessagePart& part : messages_[m].parts) {
      if (part.kind != MessagePart::Kind::image) continue;
      if (part.image < 0)
        return error(Code::argument, "message ", m, " shows the picture ", in_quotes(part.text),
                     ", and no picture was bound to that name")
            .with_fix(Fix::input);
      used[size_t(part.image)] = true;
    }
  for (const auto& [name, image] : names_)
    if (!used[size_t(image)])
      return error(Code::argument, "the picture ", in_quotes(name), " was bound, and no message shows it")
          .with_fix(Fix::input);
  return Status::ok();
}

}  // namespace dsa
