#include "text/dsml.h"

#include <algorithm>

#include "text/json_text.h"

namespace dsa {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxTagBytes = 1024;  // beyond it, what looked like a tag is none

constexpr std::string_view kDsml = "｜DSML｜", kThink = "<think>", kEndThink = "</think>";
constexpr std::string_view kCallsMark = "\n\n<｜DSML｜function_calls>", kCalls = kCallsMark.substr(2);
constexpr std::string_view kEndCalls = "</｜DSML｜function_calls>";
constexpr std::string_view kInvoke = "<｜DSML｜invoke", kEndInvoke = "</｜DSML｜invoke>";
constexpr std::string_view kParameter = "<｜DSML｜parameter", kEndParameter = "</｜DSML｜parameter>";

// The words of the vendor's encoder around the list of tools.
constexpr std::string_view kToolsBegin =
    "\n\n## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\nYou can "
    "invoke "
    "functions by writing a \"<｜DSML｜function_calls>\" block like the following as part of your reply to "
    "the user:\n"
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" "
    "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n"
    "</｜DSML｜invoke>\n<｜DSML｜invoke "
    "name=\"$FUNCTION_NAME2\">\n...\n</｜DSML｜invoke>\n</｜DSML｜function_calls>\n\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while lists and "
    "objects "
    "should use JSON format. The \"string\" attribute should be set to \"true\" for string type parameters "
    "and \"false\" "
    "for other types (numbers, booleans, arrays, objects).\n\nIf the thinking_mode is enabled, then after "
    "function "
    "results you should strongly consider outputting a thinking block. Here is an example:\n\n"
    "<｜DSML｜function_calls>\n...\n</｜DSML｜function_calls>\n\n<function_results>\n...\n</"
    "function_results>\n\n"
    "<think>...thinking about results</think>\n\nHere are the functions available in JSONSchema "
    "format:\n<functions>\n";
constexpr std::string_view kToolsEnd = "</functions>\n";

// Our own text: the names of the markers act.
void write_marked(ChatWriter& writer, const DsmlMarkers& m, std::string_view text) {
  const std::pair<std::string_view, TokenId> names[] = {
      {kDsml, m.dsml}, {kThink, m.think}, {kEndThink, m.end_think}};
  while (!text.empty()) {
    size_t first = text.npos, size = 0;
    TokenId id = -1;
    for (const auto& [name, marker] : names)
      if (const size_t at = text.find(name); marker >= 0 && at < first)
        first = at, size = name.size(), id = marker;
    writer.text(text.substr(0, first));
    if (first == text.npos) return;
    writer.control(id);
    text.remove_prefix(first + size);
  }
}

// The value of an attribute of a tag.
std::string_view attribute(std::string_view tag, std::string_view name) {
  const std::string key = concat(" ", name, "=\"");
  const size_t begin = tag.find(key);
  if (begin == tag.npos) return {};
  const std::string_view value = tag.substr(begin + key.size());
  return value.substr(0, value.find('"'));
}

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

class DsmlReader : public AnswerReader {
 public:
  DsmlReader(std::shared_ptr<const Tokenizer> tokenizer, const DsmlMarkers& markers, bool in_reasoning)
      : tokenizer_(std::move(tokenizer)),
        markers_(markers),
        within_(in_reasoning ? Within::reasoning : Within::answer) {}

  Piece push(TokenId id) override {
    text_.clear();
    if (has_ended_ || id < 0) return {};
    if (id == markers_.end) {
      Piece piece = read();
      if (is_talk()) text_ += pending_, pending_.clear();
      has_ended_ = piece.ends_turn = true;
      return told(piece);
    }
    if (id == markers_.think || id == markers_.end_think) return turn(id == markers_.think);
    pending_ += id == markers_.dsml ? kDsml : tokenizer_->bytes(id);
    return told(read());
  }

  std::vector<TokenId> closing() const override {
    if (has_ended_) return {};
    std::vector<TokenId> ids;
    if (within_ == Within::reasoning) ids.push_back(markers_.end_think);
    std::string text;
    if (within_ == Within::value) text = concat(kEndParameter, "\n");
    if (within_ >= Within::invoke) text += concat(kEndInvoke, "\n");
    if (within_ >= Within::calls) text += kEndCalls;
    auto encoded = tokenizer_->encode_markup(text);
    if (encoded.is_ok()) ids.insert(ids.end(), encoded.value().begin(), encoded.value().end());
    ids.push_back(markers_.end);
    return ids;
  }

 private:
  enum class Within { answer, reasoning, calls, invoke, value };

  bool is_talk() const { return within_ <= Within::reasoning; }

  // What was read, as a view that lives until the next token.
  Piece told(Piece piece) {
    piece.channel = piece.begins_call || piece.ends_call ? Channel::tool : channel();
    piece.is_text = !text_.empty();
    piece.text = text_;
    return piece;
  }

  Channel channel() const {
    if (has_left_) return left_;
    return within_ == Within::answer      ? Channel::answer
           : within_ == Within::reasoning ? Channel::reasoning
                                          : Channel::tool;
  }

  // <think> or </think>: text in front of it belongs to where it was. Within a value they are its text.
  Piece turn(bool begins) {
    if (!is_talk()) {
      pending_ += begins ? kThink : kEndThink;
      return told(read());
    }
    text_ = std::move(pending_);
    pending_.clear();
    Piece piece{.is_text = !text_.empty(), .channel = channel(), .text = text_};
    within_ = begins ? Within::reasoning : Within::answer;
    return piece;
  }

  // Reads on until bytes are missing, or until what follows belongs into a piece of its own.
  Piece read() {
    Piece piece;
    has_left_ = false;
    for (bool goes_on = true; goes_on;) switch (within_) {
        case Within::answer:
        case Within::reasoning: goes_on = read_talk(); break;
        case Within::calls: goes_on = read_calls(piece); break;
        case Within::invoke: goes_on = read_invoke(piece); break;
        case Within::value: goes_on = read_value(); break;
      }
    return piece;
  }

  bool read_talk() {
    const size_t at = pending_.find(kCalls);
    if (at == pending_.npos) {
      // Up to two line ends in front of the tag belong to it.
      size_t kept = 0;
      for (const std::string_view mark : {kCallsMark, kCallsMark.substr(1), kCallsMark.substr(2)})
        kept = std::max(kept, begun(pending_, mark));
      text_ += std::string_view(pending_).substr(0, pending_.size() - kept);
      pending_.erase(0, pending_.size() - kept);
      return false;
    }
    left_ = channel();
    size_t end = at;
    for (int i = 0; i < 2 && end > 0 && pending_[end - 1] == '\n'; ++i) --end;
    text_ += std::string_view(pending_).substr(0, end);
    pending_.erase(0, at + kCalls.size());
    within_ = Within::calls;
    has_left_ = !text_.empty();
    return !has_left_;  // calls are not told together with what was said before
  }

  // Between calls: nothing but their tags counts.
  bool read_calls(Piece& piece) {
    std::string tag;
    if (!read_tag(tag)) return false;
    if (tag == kEndCalls) {
      within_ = Within::answer;
    } else if (tag.starts_with(kInvoke)) {
      name_ = std::string(attribute(tag, "name").substr(0, kMaxNameBytes));
      within_ = Within::invoke;
      num_parameters_ = 0;
      piece.begins_call = true;
      piece.name = trimmed(name_);
    }
    return true;
  }

  bool read_invoke(Piece& piece) {
    std::string tag;
    if (!read_tag(tag)) return false;
    if (tag == kEndInvoke) {
      text_ += num_parameters_ == 0 ? "{}" : "}";
      piece.ends_call = true;
      within_ = Within::calls;
      return false;
    }
    if (tag.starts_with(kParameter)) {
      text_ += num_parameters_++ == 0 ? "{\"" : ", \"";
      append_json_escaped(text_, attribute(tag, "name"));
      is_string_ = attribute(tag, "string") != "false";
      text_ += is_string_ ? "\": \"" : "\": ";
      within_ = Within::value;
    }
    return true;
  }

  bool read_value() {
    const size_t at = pending_.find(kEndParameter);
    const size_t size = at != pending_.npos ? at : pending_.size() - begun(pending_, kEndParameter);
    const std::string_view value = std::string_view(pending_).substr(0, size);
    if (is_string_)
      append_json_escaped(text_, value);
    else
      text_ += value;
    pending_.erase(0, size);
    if (at == pending_.npos) return false;
    pending_.erase(0, kEndParameter.size());
    if (is_string_) text_ += '"';
    within_ = Within::invoke;
    return true;
  }

  // The next tag, with what stands before it gone; false: it has not ended yet.
  bool read_tag(std::string& tag) {
    pending_.erase(0, std::min(pending_.find('<'), pending_.size()));
    const size_t end = pending_.find('>');
    if (end == pending_.npos) {
      if (pending_.size() > kMaxTagBytes) pending_.clear();
      return false;
    }
    tag = pending_.substr(0, end + 1);
    pending_.erase(0, end + 1);
    return true;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  DsmlMarkers markers_;
  Within within_;
  std::string pending_, text_, name_;
  Channel left_ = Channel::answer;  // where text_ belongs if the calls have begun behind it
  bool has_left_ = false, is_string_ = false, has_ended_ = false;
  int num_parameters_ = 0;
};

}  // namespace

void write_dsml_tools(ChatWriter& writer, const DsmlMarkers& markers, std::span<const Tool> tools) {
  write_marked(writer, markers, kToolsBegin);
  for (const Tool& tool : tools) writer.text(json_respaced(tool.function(), ", ", ": ") + "\n");
  writer.text(kToolsEnd);
}

void write_dsml_calls(ChatWriter& writer, const DsmlMarkers& markers, const std::vector<ToolCall>& calls) {
  write_marked(writer, markers, kCallsMark);
  for (const ToolCall& call : calls) {
    if (const Status status = check_arguments(call.arguments); !status.is_ok()) return writer.fail(status);
    writer.text("\n");
    write_marked(writer, markers, concat(kInvoke, " name=\""));
    writer.text(concat(call.name, "\">\n"));
    const auto parameters = json_members(call.arguments);
    if (parameters.empty()) writer.text("\n");
    for (const auto& [name, value] : parameters) {
      const bool is_string = value.starts_with('"');
      write_marked(writer, markers, concat(kParameter, " name=\""));
      writer.text(concat(name, "\" string=\"", is_string ? "true" : "false", "\">"));
      writer.text(is_string ? json_string(value) : json_respaced(value, ", ", ": "));
      write_marked(writer, markers, concat(kEndParameter, "\n"));
    }
    write_marked(writer, markers, kEndInvoke);
  }
  writer.text("\n");
  write_marked(writer, markers, kEndCalls);
}

std::unique_ptr<AnswerReader> dsml_reader(std::shared_ptr<const Tokenizer> tokenizer,
                                          const DsmlMarkers& markers, bool in_reasoning) {
  return std::make_unique<DsmlReader>(std::move(tokenizer), markers, in_reasoning);
}

}  // namespace dsa
