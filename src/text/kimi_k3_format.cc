#include "text/kimi_k3_format.h"

#include <algorithm>
#include <iterator>

#include "io/json.h"
#include "text/chat_writer.h"
#include "text/json_text.h"

namespace dsa {

namespace {

constexpr size_t kMaxDepth = 16;      // elements that the reader keeps track of; the format needs four
constexpr size_t kMaxTagBytes = 512;  // of a tag that the reader remembers

std::string_view role_name(Role role) {
  switch (role) {
    case Role::system: return "system";
    case Role::user: return "user";
    case Role::assistant: return "assistant";
    case Role::tool: return "tool";
  }
  return "user";
}

std::string escape_attribute(std::string_view value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

// The value of an attribute of a tag; empty if there is none.
std::string attribute_of(std::string_view tag, std::string_view key) {
  const std::string begin = concat(' ', key, "=\"");
  const size_t at = tag.find(begin);
  if (at == std::string_view::npos) return {};
  std::string_view rest = tag.substr(at + begin.size());
  rest = rest.substr(0, rest.find('"'));
  std::string value;
  while (!rest.empty()) {
    const bool is_quote = rest.starts_with("&quot;"), is_ampersand = rest.starts_with("&amp;");
    value += is_quote ? '"' : rest[0];
    rest.remove_prefix(is_quote ? 6 : is_ampersand ? 5 : 1);
  }
  return value;
}

// What the type attribute says of a JSON value.
std::string_view type_of(std::string_view value) {
  switch (value[0]) {
    case '"': return "string";
    case '{': return "object";
    case '[': return "array";
    case 't':
    case 'f': return "boolean";
    case 'n': return "null";
    default: return "number";
  }
}

// The words of the vendor's code.
constexpr std::string_view kTools = "# Tools\nHere are the available tools, described in JSONSchema.\n\n";
constexpr std::string_view kMoreTools =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access "
    "to all "
    "existing and extended tools.\nHere are the specs for the extended tools.\n\n";
constexpr std::string_view kNoTools =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";

// Compact, with the keys of all objects sorted.
Result<std::string> sorted_json(std::span<const Tool> tools) {
  std::string list;
  for (const Tool& tool : tools) list += concat(list.empty() ? "[" : ",", tool.json);
  DSA_ASSIGN(Json json, parse_json(list + "]", "tools"));
  const JsonRelease release(json);
  return json.dump();
}

// Follows the elements of an answer. Text belongs to the innermost element that we know: think is reasoning,
// everything within tools is tool, the rest is answer, unknown elements and text outside of any included, so
// that a model that forgets its format is still heard. Tags are never text, and nothing is after the end of
// the message. Within a call only arguments are heard, as JSON.
class KimiK3Reader : public AnswerReader {
 public:
  KimiK3Reader(std::shared_ptr<const Tokenizer> tokenizer, const KimiK3Format::Markers& markers,
               bool thinking)
      : tokenizer_(std::move(tokenizer)), markers_(markers) {
    elements_.reserve(kMaxDepth);
    tag_.reserve(kMaxTagBytes);
    elements_.push_back({"message", Channel::answer});
    enter(thinking ? "think" : "response");
  }

  Piece push(TokenId id) override {
    if (has_ended_) return {};
    if (id == markers_.end_of_message || id == markers_.end_of_text) {
      has_ended_ = true;
      return {.ends_turn = true};
    }
    if (id == markers_.open)
      begin_tag(Within::opening);
    else if (id == markers_.close)
      begin_tag(Within::closing);
    else if (id == markers_.sep)
      return end_tag();
    else if (within_ == Within::content)
      return read_content(id);
    else {
      const std::string_view bytes = tokenizer_->bytes(id);
      tag_ += bytes.substr(0, std::min(bytes.size(), kMaxTagBytes - tag_.size()));
    }
    return {};
  }

  std::vector<TokenId> closing() const override {
    std::vector<TokenId> ids;
    if (has_ended_) return ids;
    std::vector<Element> open = elements_;
    // A tag that was cut off: the name of a closing one is completed, an opening one opens what it said.
    if (within_ == Within::closing) {
      const bool is_innermost = !open.empty() && open.back().name.compare(0, tag_.size(), tag_) == 0;
      if (is_innermost) append_name(ids, std::string_view(open.back().name).substr(tag_.size()));
      leave(open, std::string(is_innermost ? std::string_view(open.back().name) : tag_name()));
      ids.push_back(markers_.sep);
    } else if (within_ == Within::opening) {
      ids.push_back(markers_.sep);
      open.push_back({std::string(tag_name()), Channel::answer});
    }
    for (; !open.empty(); open.pop_back()) {
      ids.push_back(markers_.close);
      append_name(ids, open.back().name);
      ids.push_back(markers_.sep);
    }
    ids.push_back(markers_.end_of_message);
    return ids;
  }

 private:
  enum class Within { content, opening, closing };
  enum class Part { none, call, string, json, arguments };  // of a call: a string, a value, or all at once
  struct Element {
    std::string name;
    Channel channel;
    Part part = Part::none;
  };

  Piece read_content(TokenId id) {
    // Control tokens and ids that stand for nothing have no bytes; nobody hears what follows the message.
    const std::string_view bytes = tokenizer_->bytes(id);
    if (elements_.empty() || bytes.empty()) return {};
    const Part part = elements_.back().part;
    Piece piece{.is_text = part != Part::call, .channel = elements_.back().channel, .text = bytes};
    if (part == Part::string) {
      text_.clear();
      append_json_escaped(text_, bytes);
      piece.text = text_;
    }
    return piece;
  }

  void begin_tag(Within within) {
    within_ = within;
    tag_.clear();
  }

  Piece end_tag() {
    const Within within = std::exchange(within_, Within::content);
    if (within == Within::opening) return enter(tag_name());
    if (within == Within::closing) return close(tag_name());
    return {};
  }

  std::string_view tag_name() const { return std::string_view(tag_).substr(0, tag_.find(' ')); }

  Piece enter(std::string_view name) {
    if (elements_.empty() || elements_.size() == kMaxDepth) return {};  // nothing follows the message
    Channel channel = elements_.back().channel;
    const Part outer = elements_.back().part;
    Piece piece;
    Part part = outer;
    if (channel != Channel::tool) {
      if (name == "think") channel = Channel::reasoning;
      if (name == "response") channel = Channel::answer;
      if (name == "tools") channel = Channel::tool;
    } else if (name == "call" && elements_.back().name == "tools") {
      part = Part::call;
      num_arguments_ = 0;
      has_all_ = false;
      name_ = attribute_of(tag_, "tool");
      piece = {.begins_call = true, .channel = Channel::tool, .name = name_};
    } else if (name == "argument" && outer == Part::call) {
      part = attribute_of(tag_, "type") == "string" ? Part::string : Part::json;
      text_ = num_arguments_++ == 0 ? "{\"" : ", \"";
      append_json_escaped(text_, attribute_of(tag_, "key"));
      text_ += part == Part::string ? "\": \"" : "\": ";
      piece = {.is_text = true, .channel = Channel::tool, .text = text_};
    } else if (name == "json" && outer == Part::call) {
      part = Part::arguments;
      has_all_ = true;
    }
    elements_.push_back({std::string(name), channel, part});
    return piece;
  }

  // What a closing tag means for a call that is open.
  Piece close(std::string_view name) {
    const size_t before = elements_.size();
    const bool is_argument =
        before > 0 && elements_.back().part == Part::string && elements_.back().name == name;
    const bool is_call =
        before > 0 && elements_.back().part == Part::call && elements_.back().name == name && name == "call";
    leave(elements_, name);
    if (is_argument) return {.is_text = true, .channel = Channel::tool, .text = "\""};
    if (!is_call) return {};
    const std::string_view end = has_all_ ? "" : num_arguments_ == 0 ? "{}" : "}";
    return {.is_text = !end.empty(), .channel = Channel::tool, .ends_call = true, .text = end};
  }

  // Closes the innermost element of that name and what is open inside of it, or nothing if there is none.
  static void leave(std::vector<Element>& elements, std::string_view name) {
    for (size_t i = elements.size(); i > 0; --i)
      if (elements[i - 1].name == name) return elements.resize(i - 1);
  }

  void append_name(std::vector<TokenId>& ids, std::string_view name) const {
    const auto name_ids = tokenizer_->encode(name);
    if (!name_ids.is_ok()) return;  // the model invented a name that is not even text
    ids.insert(ids.end(), name_ids.value().begin(), name_ids.value().end());
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  KimiK3Format::Markers markers_;
  std::vector<Element> elements_;  // open ones, from the outermost
  Within within_ = Within::content;
  std::string tag_;  // name and attributes, as far as they came
  std::string text_, name_;
  int num_arguments_ = 0;  // of the call
  bool has_all_ = false;   // its arguments came as one text
  bool has_ended_ = false;
};

// Prefixes the sentence of a failure with the message it is about.
Status in_message(size_t index, const Status& status) {
  ErrorInfo info = status.info();
  info.message = concat("message ", index, ": ", info.message);
  return Status(std::move(info));
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> KimiK3Format::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                               std::string_view chat_template) {
  DSA_TRY(check_template(chat_template, "Kimi K3", {"<|open|>", "<|sep|>", "<|close|>", "<|end_of_msg|>"},
                         {"<|im_start|>", "<|im_middle|>", "[gMASK]", "<|start|>"}));
  auto format = std::make_shared<KimiK3Format>();
  const struct {
    const char* name;
    TokenId* id;
  } markers[] = {{"<|open|>", &format->markers_.open},
                 {"<|close|>", &format->markers_.close},
                 {"<|sep|>", &format->markers_.sep},
                 {"<|end_of_msg|>", &format->markers_.end_of_message}};
  for (const auto& marker : markers) {
    const std::optional<TokenId> id = tokenizer->control_id(marker.name);
    if (!id)
      return error(Code::model, "the tokenizer has no control token ", marker.name,
                   ", which this chat format needs");
    *marker.id = *id;
  }
  format->markers_.end_of_text = tokenizer->control_id("[EOS]").value_or(-1);
  const std::optional<TokenId> media[] = {
      tokenizer->control_id("<|media_begin|>"), tokenizer->control_id("<|media_content|>"),
      tokenizer->control_id("<|media_pad|>"), tokenizer->control_id("<|media_end|>")};
  const bool has_media = std::all_of(std::begin(media), std::end(media), [](const auto& id) { return id; });
  Markers& m = format->markers_;
  TokenId* const ids[] = {&m.media_begin, &m.media_content, &m.media_pad, &m.media_end};
  for (size_t i = 0; i < std::size(media); ++i) *ids[i] = has_media ? *media[i] : -1;
  format->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

Result<RenderedChat> KimiK3Format::render(const std::vector<Message>& messages,
                                          std::span<const ImageSlot> images,
                                          const ChatOptions& options) const {
  RenderedChat chat;
  if (!options.tools.empty()) {
    DSA_ASSIGN(const std::string json, sorted_json(options.tools));
    DSA_TRY(append_note(chat.tokens, "tool-declare",
                        concat(options.begins ? kTools : kMoreTools, "```json\n", json, "\n```")));
  }
  int result_index = 0;  // of a tool's result, counted from 1 after each message of the assistant
  for (const Message* message : in_call_order(messages, options.calls)) {
    if (message->role == Role::assistant) result_index = 0;
    if (message->role == Role::tool) ++result_index;
    const Status status = append_message(chat, *message, tool_name_of(*message, messages, options.calls),
                                         images, result_index, options.thinking);
    if (!status.is_ok()) return in_message(size_t(message - messages.data()), status);
  }
  if (!options.tools.empty() && !options.may_call) DSA_TRY(append_note(chat.tokens, "tool-choice", kNoTools));
  if (options.ask) {
    DSA_TRY(append_open(chat.tokens, "message", {{"role", "assistant"}}));
    DSA_TRY(append_open(chat.tokens, options.thinking ? "think" : "response", {}));
  }
  chat.in_reasoning = options.ask && options.thinking;
  return chat;
}

// A message of the system about the conversation.
Status KimiK3Format::append_note(std::vector<TokenId>& ids, std::string_view type,
                                 std::string_view text) const {
  DSA_TRY(append_open(ids, "message", {{"role", "system"}, {"type", std::string(type)}}));
  DSA_TRY(append_text(ids, text));
  DSA_TRY(append_close(ids, "message"));
  ids.push_back(markers_.end_of_message);
  return Status::ok();
}

Status KimiK3Format::append_message(RenderedChat& chat, const Message& message, const std::string& tool,
                                    std::span<const ImageSlot> images, int result_index,
                                    bool thinking) const {
  std::vector<TokenId>& ids = chat.tokens;
  const std::string role(role_name(message.role));
  if (message.role == Role::tool && !tool.empty()) {
    DSA_TRY(append_open(ids, "message",
                        {{"role", role}, {"tool", tool}, {"index", std::to_string(result_index)}}));
  } else if (message.role == Role::tool) {
    DSA_TRY(append_open(ids, "message", {{"role", role}, {"index", std::to_string(result_index)}}));
  } else if (message.role != Role::assistant && !message.name.empty()) {
    DSA_TRY(append_open(ids, "message", {{"role", role}, {"name", message.name}}));
  } else {
    DSA_TRY(append_open(ids, "message", {{"role", role}}));
  }

  const bool is_answer = message.role == Role::assistant;
  if (is_answer && thinking) {  // reasoning is present even when there is none
    DSA_TRY(append_open(ids, "think", {}));
    DSA_TRY(append_text(ids, message.reasoning));
    DSA_TRY(append_close(ids, "think"));
  }
  if (is_answer) DSA_TRY(append_open(ids, "response", {}));
  for (const MessagePart& part : message.parts) DSA_TRY(append_part(chat, part, images));
  if (is_answer) DSA_TRY(append_close(ids, "response"));
  if (!message.calls.empty()) DSA_TRY(append_calls(ids, message.calls));
  DSA_TRY(append_close(ids, "message"));
  ids.push_back(markers_.end_of_message);
  return Status::ok();
}

Status KimiK3Format::append_calls(std::vector<TokenId>& ids, const std::vector<ToolCall>& calls) const {
  DSA_TRY(append_open(ids, "tools", {}));
  for (size_t i = 0; i < calls.size(); ++i) {
    DSA_TRY(append_open(ids, "call", {{"tool", calls[i].name}, {"index", std::to_string(i + 1)}}));
    if (check_arguments(calls[i].arguments).is_ok()) {
      for (const auto& [key, value] : json_members(calls[i].arguments)) {
        DSA_TRY(append_open(ids, "argument", {{"key", key}, {"type", std::string(type_of(value))}}));
        DSA_TRY(append_text(ids, value[0] == '"' ? json_string(value) : json_respaced(value, ", ", ": ")));
        DSA_TRY(append_close(ids, "argument"));
      }
    } else {
      DSA_TRY(append_open(ids, "json", {{"type", "object"}}));
      DSA_TRY(append_text(ids, calls[i].arguments));
      DSA_TRY(append_close(ids, "json"));
    }
    DSA_TRY(append_close(ids, "call"));
  }
  return append_close(ids, "tools");
}

Status KimiK3Format::append_part(RenderedChat& chat, const MessagePart& part,
                                 std::span<const ImageSlot> images) const {
  std::vector<TokenId>& ids = chat.tokens;
  switch (part.kind) {
    case MessagePart::Kind::text: return append_text(ids, part.text);
    case MessagePart::Kind::markup: {
      DSA_ASSIGN(const std::vector<TokenId> markup, tokenizer_->encode_markup(part.text));
      ids.insert(ids.end(), markup.begin(), markup.end());
      return Status::ok();
    }
    case MessagePart::Kind::tokens:
      for (const TokenId id : part.tokens)
        if (id < 0 || id >= tokenizer_->vocab_size())
          return error(Code::argument, "token ", id, ", expected 0 to ", tokenizer_->vocab_size() - 1);
      ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
      return Status::ok();
    case MessagePart::Kind::image: return append_image(chat, part, images);
  }
  return error(Code::argument, "a part of unknown kind");
}

Status KimiK3Format::append_image(RenderedChat& chat, const MessagePart& part,
                                  std::span<const ImageSlot> images) const {
  if (markers_.media_pad < 0)
    return error(Code::unsupported, "the tokenizer has no <|media_pad|>: it cannot write pictures");
  if (part.image < 0 || size_t(part.image) >= images.size())
    return error(Code::argument, "picture ", part.image, " of ", images.size()).with_fix(Fix::input);
  const ImageSlot& image = images[size_t(part.image)];
  chat.tokens.push_back(markers_.media_begin);
  DSA_TRY(append_text(chat.tokens, concat("image ", image.width, "x", image.height)));
  chat.tokens.push_back(markers_.media_content);
  chat.places.push_back({chat.tokens.size(), part.image});
  chat.tokens.insert(chat.tokens.end(), size_t(image.tokens), markers_.media_pad);
  chat.tokens.push_back(markers_.media_end);
  return Status::ok();
}

Status KimiK3Format::append_open(std::vector<TokenId>& ids, std::string_view tag,
                                 std::initializer_list<Attribute> attributes) const {
  ids.push_back(markers_.open);
  DSA_TRY(append_text(ids, tag));
  for (const Attribute& attribute : attributes) {
    DSA_TRY(append_text(ids, concat(' ', attribute.key)));
    DSA_TRY(append_text(ids, "=\""));
    DSA_TRY(append_text(ids, escape_attribute(attribute.value)));
    DSA_TRY(append_text(ids, "\""));
  }
  ids.push_back(markers_.sep);
  return Status::ok();
}

Status KimiK3Format::append_close(std::vector<TokenId>& ids, std::string_view tag) const {
  ids.push_back(markers_.close);
  DSA_TRY(append_text(ids, tag));
  ids.push_back(markers_.sep);
  return Status::ok();
}

Status KimiK3Format::append_text(std::vector<TokenId>& ids, std::string_view text) const {
  DSA_ASSIGN(const std::vector<TokenId> encoded, tokenizer_->encode(text));
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return Status::ok();
}

std::unique_ptr<AnswerReader> KimiK3Format::reader(bool in_reasoning, std::span<const Tool>) const {
  return std::make_unique<KimiK3Reader>(tokenizer_, markers_, in_reasoning);
}

std::vector<TokenId> KimiK3Format::stop_tokens() const {
  std::vector<TokenId> ids = {markers_.end_of_message};
  if (markers_.end_of_text >= 0) ids.push_back(markers_.end_of_text);
  return ids;
}

}  // namespace dsa
