#include "text/chat_writer.h"

#include <algorithm>

#include "io/json.h"

namespace dsa {

void ChatWriter::fail(Status status) {
  if (!failure_.is_ok() || status.is_ok()) return;
  if (message_ != size_t(-1)) {
    ErrorInfo info = status.info();
    info.message = concat("message ", message_, ": ", info.message);
    status = Status(std::move(info));
  }
  failure_ = std::move(status);
}

void ChatWriter::flush() {
  if (pending_.empty()) return;
  auto ids = tokenizer_.encode(pending_);
  if (ids.is_ok())
    chat_.tokens.insert(chat_.tokens.end(), ids.value().begin(), ids.value().end());
  else
    fail(ids.status());
  pending_.clear();
}

void ChatWriter::control(TokenId id) {
  flush();
  chat_.tokens.push_back(id);
}

void ChatWriter::markup(std::string_view text) {
  flush();
  auto ids = tokenizer_.encode_markup(text);
  if (ids.is_ok())
    chat_.tokens.insert(chat_.tokens.end(), ids.value().begin(), ids.value().end());
  else
    fail(ids.status());
}

void ChatWriter::parts(const Message& message, const WriteImage& image) {
  for (const MessagePart& part : message.parts) {
    switch (part.kind) {
      case MessagePart::Kind::text: text(part.text); break;
      case MessagePart::Kind::markup: markup(part.text); break;
      case MessagePart::Kind::tokens:
        flush();
        for (const TokenId id : part.tokens)
          if (id < 0 || id >= tokenizer_.vocab_size())
            return fail(error(Code::argument, "token ", id, ", expected 0 to ", tokenizer_.vocab_size() - 1));
        chat_.tokens.insert(chat_.tokens.end(), part.tokens.begin(), part.tokens.end());
        break;
      case MessagePart::Kind::image:
        if (!image) return fail(error(Code::unsupported, "this chat format cannot write pictures"));
        flush();
        image(part);
        break;
    }
  }
}

void ChatWriter::image(int index, TokenId token, int count) {
  flush();
  chat_.places.push_back({chat_.tokens.size(), index});
  chat_.tokens.insert(chat_.tokens.end(), size_t(count), token);
}

Result<RenderedChat> ChatWriter::finish() {
  flush();
  if (!failure_.is_ok()) return failure_;
  return std::move(chat_);
}

Result<TokenId> require_control(const Tokenizer& tokenizer, std::string_view name) {
  const std::optional<TokenId> id = tokenizer.control_id(name);
  if (!id)
    return error(Code::model, "the tokenizer has no control token ", name, ", which this chat format needs");
  return *id;
}

Status check_template(std::string_view chat_template, const char* format,
                      std::initializer_list<std::string_view> marks,
                      std::initializer_list<std::string_view> foreign) {
  if (chat_template.empty()) return Status::ok();
  for (const std::string_view mark : marks)
    if (chat_template.find(mark) == std::string_view::npos)
      return error(Code::unsupported, "the package's chat template is not the ", format,
                   " one that we know: it has no ", in_quotes(mark));
  for (const std::string_view mark : foreign)
    if (chat_template.find(mark) != std::string_view::npos)
      return error(Code::unsupported, "the package's chat template is not the ", format,
                   " one that we know: it has ", in_quotes(mark));
  return Status::ok();
}

std::vector<const Message*> in_call_order(const std::vector<Message>& messages,
                                          std::span<const ToolCall> calls) {
  std::vector<const Message*> order;
  for (const Message& message : messages) order.push_back(&message);
  for (size_t begin = 0; begin < order.size();) {
    if (order[begin]->role == Role::assistant) calls = order[begin]->calls;
    size_t end = begin;
    while (end < order.size() && order[end]->role == Role::tool) ++end;
    if (end == begin) {
      ++begin;
      continue;
    }
    // The place of its call; calls.size() if it has none, or shares it.
    const auto place = [&](const Message* result) {
      size_t found = calls.size();
      for (size_t i = 0; i < calls.size(); ++i)
        if (!calls[i].id.empty() && calls[i].id == result->call_id)
          found = found == calls.size() ? i : calls.size();
      return found;
    };
    std::vector<std::pair<size_t, const Message*>> run;
    for (size_t i = begin; i < end; ++i) run.emplace_back(place(order[i]), order[i]);
    std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const bool is_matched = run.back().first < calls.size() &&
                            std::adjacent_find(run.begin(), run.end(), [](const auto& a, const auto& b) {
                              return a.first == b.first;
                            }) == run.end();
    if (is_matched)
      for (size_t i = 0; i < run.size(); ++i) order[begin + i] = run[i].second;
    begin = end;
  }
  return order;
}

std::string tool_name_of(const Message& result, const std::vector<Message>& messages,
                         std::span<const ToolCall> calls) {
  if (!result.name.empty() || result.call_id.empty()) return result.name;
  std::string name;
  for (const ToolCall& call : calls)
    if (call.id == result.call_id) name = call.name;
  for (const Message& message : messages) {
    if (&message == &result) break;
    for (const ToolCall& call : message.calls)
      if (call.id == result.call_id) name = call.name;  // the last one before
  }
  return name;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && uint8_t(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && uint8_t(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

}  // namespace dsa
