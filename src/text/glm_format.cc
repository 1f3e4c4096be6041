#include "text/glm_format.h"

#include <unordered_set>

#include "io/json.h"
#include "text/chat_writer.h"
#include "text/json_text.h"

namespace dsa {

namespace {

constexpr size_t kMaxNameBytes = 256;         // of a call that the reader remembers
constexpr size_t kMaxValueBytes = 16u << 20;  // of an argument

// The words of the vendor's template around the list of tools.
constexpr std::string_view kToolsBegin =
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    "function signatures within <tools></tools> XML tags:\n<tools>\n";
constexpr std::string_view kToolsEnd =
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML "
    "format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
    "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>";

// A tool as its template writes it.
std::string declaration_of(const Tool& tool) {
  std::string out;
  for (const auto& [key, value] : json_members(tool.function())) {
    if (key == "defer_loading" || key == "strict") continue;
    out += out.empty() ? "{\"" : ", \"";
    append_json_escaped(out, key);
    out += "\": ";
    out += json_respaced(value, ", ", ": ");
  }
  return out.empty() ? "{}" : out + "}";
}

// Values are written bare: one of type string in the schema is a string, one of another type JSON; without a type it is
// JSON if it can be. What a value is is known at its end, so it is told there, whole.
class GlmReader : public AnswerReader {
 public:
  GlmReader(std::shared_ptr<const Tokenizer> tokenizer, const GlmFormat::Markers& markers, bool in_reasoning,
            std::span<const Tool> tools)
      : tokenizer_(std::move(tokenizer)),
        markers_(markers),
        tools_(tools.begin(), tools.end()),
        within_(in_reasoning ? Within::reasoning : Within::answer) {}

  Piece push(TokenId id) override {
    if (has_ended_ || id < 0) return {};
    const GlmFormat::Markers& m = markers_;
    if (id == m.user || id == m.observation || id == m.system || id == m.assistant || id == m.end_of_text) {
      has_ended_ = true;
      return {.ends_turn = true, .is_dropped = true};
    }
    if (id == m.think && within_ == Within::answer) return within_ = Within::reasoning, Piece();
    if (id == m.end_think && within_ == Within::reasoning) return within_ = Within::answer, Piece();
    if (id == m.call) return begin_call();
    if (within_ == Within::answer || within_ == Within::reasoning) {
      const std::string_view bytes = tokenizer_->bytes(id);
      return {.is_text = !bytes.empty(),
              .channel = within_ == Within::answer ? Channel::answer : Channel::reasoning,
              .text = bytes};
    }
    return push_in_call(id);
  }

  std::vector<TokenId> closing() const override {
    if (has_ended_) return {};
    const GlmFormat::Markers& m = markers_;
    switch (within_) {
      case Within::answer: return {};
      case Within::reasoning: return {m.end_think};
      case Within::key: return {m.end_key, m.value, m.end_value, m.end_call};
      case Within::value: return {m.end_value, m.end_call};
      case Within::name:
      case Within::arguments: return {m.end_call};
    }
    return {};
  }

 private:
  enum class Within { answer, reasoning, name, arguments, key, value };

  Piece begin_call() {
    within_ = Within::name;
    has_begun_ = false;
    name_.clear();
    num_arguments_ = 0;
    return {};
  }

  Piece push_in_call(TokenId id) {
    const GlmFormat::Markers& m = markers_;
    if (id == m.key) {
      Piece piece = announce();
      within_ = Within::key;
      key_.clear();
      return piece;
    }
    if (id == m.value && within_ == Within::arguments) {
      within_ = Within::value;
      value_.clear();
    } else if (id == m.end_key && within_ == Within::key) {
      within_ = Within::arguments;
    } else if (id == m.end_value && within_ == Within::value) {
      within_ = Within::arguments;
      text_ = num_arguments_++ == 0 ? "{\"" : ", \"";
      append_json_escaped(text_, key_);
      text_ += "\": ";
      append_value();
      return {.is_text = true, .channel = Channel::tool, .text = text_};
    } else if (id == m.end_call) {
      Piece piece = announce();
      text_ = num_arguments_ == 0 ? "{}" : "}";
      within_ = Within::answer;
      piece.is_text = piece.ends_call = true;
      piece.text = text_;
      return piece;
    } else if (within_ == Within::name) {
      append_limited(name_, tokenizer_->bytes(id), kMaxNameBytes);
    } else if (within_ == Within::key) {
      append_limited(key_, tokenizer_->bytes(id), kMaxNameBytes);
    } else if (within_ == Within::value) {
      append_limited(value_, tokenizer_->bytes(id), kMaxValueBytes);
    }
    return {};
  }

  // The call begins once its name is known.
  Piece announce() {
    Piece piece{.begins_call = !has_begun_, .channel = Channel::tool, .name = trimmed(name_)};
    has_begun_ = true;
    return piece;
  }

  void append_value() {
    std::string type;
    for (const Tool& tool : tools_)
      if (tool.name == trimmed(name_)) type = tool.parameter_type(key_);
    JsonLimits limits;
    bool is_json = type != "string";
    if (is_json) {
      auto parsed = parse_json(value_, "a value", limits);
      is_json = parsed.is_ok();
      if (is_json) {
        Json json = std::move(parsed).value();
        const JsonRelease release(json);
      }
    }
    if (is_json) {
      text_ += value_;
    } else {
      text_ += '"';
      append_json_escaped(text_, value_);
      text_ += '"';
    }
  }

  static void append_limited(std::string& out, std::string_view bytes, size_t limit) {
    out += bytes.substr(0, std::min(bytes.size(), limit - std::min(limit, out.size())));
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  GlmFormat::Markers markers_;
  std::vector<Tool> tools_;
  Within within_;
  std::string name_, key_, value_, text_;
  int num_arguments_ = 0;
  bool has_begun_ = false, has_ended_ = false;
};

}  // namespace

Result<std::shared_ptr<const ChatFormat>> GlmFormat::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                            std::string_view chat_template,
                                                            bool tells_effort) {
  DSA_TRY(check_template(chat_template, "GLM-5",
                         {"[gMASK]<sop>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>",
                          "<tool_response>", "<arg_key>"},
                         {"<|im_start|>", "<|im_middle|>", "<|open|>", "<｜User｜>"}));
  auto format = std::make_shared<GlmFormat>();
  Markers& m = format->markers_;
  const struct {
    const char* name;
    TokenId* id;
  } required[] = {{"[gMASK]", &m.mask},
                  {"<sop>", &m.sop},
                  {"<|system|>", &m.system},
                  {"<|user|>", &m.user},
                  {"<|assistant|>", &m.assistant},
                  {"<|observation|>", &m.observation},
                  {"<|endoftext|>", &m.end_of_text},
                  {"<think>", &m.think},
                  {"</think>", &m.end_think},
                  {"<tool_call>", &m.call},
                  {"</tool_call>", &m.end_call},
                  {"<tool_response>", &m.response},
                  {"</tool_response>", &m.end_response},
                  {"<arg_key>", &m.key},
                  {"</arg_key>", &m.end_key},
                  {"<arg_value>", &m.value},
                  {"</arg_value>", &m.end_value}};
  for (const auto& marker : required) {
    DSA_ASSIGN(*marker.id, require_control(*tokenizer, marker.name));
  }
  m.begin_image = tokenizer->control_id("<|begin_of_image|>").value_or(-1);
  m.image = tokenizer->control_id("<|image|>").value_or(-1);
  m.end_image = tokenizer->control_id("<|end_of_image|>").value_or(-1);
  if (m.begin_image < 0 || m.image < 0 || m.end_image < 0) m.begin_image = m.image = m.end_image = -1;
  format->tells_effort_ = chat_template.empty()
                              ? tells_effort
                              : chat_template.find("Reasoning Effort: ") != std::string_view::npos;
  format->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

Result<RenderedChat> GlmFormat::render(const std::vector<Message>& messages,
                                       std::span<const ImageSlot> images, const ChatOptions& options) const {
  const Markers& m = markers_;
  ChatWriter writer(*tokenizer_);
  if (options.begins) {
    writer.control(m.mask);
    writer.control(m.sop);
    if (tells_effort_ && options.thinking) {
      writer.control(m.system);
      writer.text("Reasoning Effort: Max");
    }
  }
  if (!options.tools.empty() && options.may_call) {
    writer.control(m.system);
    writer.markup(kToolsBegin);
    for (const Tool& tool : options.tools) writer.text(declaration_of(tool) + "\n");
    writer.markup(kToolsEnd);
  }
  const auto write_image = [&](const MessagePart& part) {
    if (m.image < 0)
      return writer.fail(
          error(Code::unsupported, "the tokenizer has no <|image|>: it cannot write pictures"));
    if (part.image < 0 || size_t(part.image) >= images.size())
      return writer.fail(
          error(Code::argument, "picture ", part.image, " of ", images.size()).with_fix(Fix::input));
    writer.control(m.begin_image);
    writer.image(part.image, m.image, images[size_t(part.image)].tokens);
    writer.control(m.end_image);
  };
  Role previous = Role::system;
  for (const Message* message : in_call_order(messages, options.calls)) {
    writer.begin_message(size_t(message - messages.data()));
    switch (message->role) {
      case Role::system: writer.control(m.system); break;
      case Role::user: writer.control(m.user); break;
      case Role::assistant:
        writer.control(m.assistant);
        writer.control(m.think);
        writer.text(message->reasoning);
        writer.control(m.end_think);
        break;
      case Role::tool:
        if (previous != Role::tool) writer.control(m.observation);
        writer.control(m.response);
        break;
    }
    previous = message->role;
    writer.parts(*message, write_image);
    if (message->role == Role::tool) writer.control(m.end_response);
    for (const ToolCall& call : message->calls) {
      if (const Status status = check_arguments(call.arguments); !status.is_ok()) writer.fail(status);
      writer.control(m.call);
      writer.text(call.name);
      for (const auto& [key, value] : json_members(call.arguments)) {
        writer.control(m.key);
        writer.text(key);
        writer.control(m.end_key);
        writer.control(m.value);
        writer.text(value.starts_with('"') ? json_string(value) : json_respaced(value, ", ", ": "));
        writer.control(m.end_value);
      }
      writer.control(m.end_call);
    }
  }
  if (options.ask) {
    writer.control(m.assistant);
    writer.control(m.think);
    if (!options.thinking) writer.control(m.end_think);
  }
  DSA_ASSIGN(RenderedChat chat, writer.finish());
  chat.in_reasoning = options.ask && options.thinking;
  return chat;
}

std::unique_ptr<AnswerReader> GlmFormat::reader(bool in_reasoning, std::span<const Tool> tools) const {
  return std::make_unique<GlmReader>(tokenizer_, markers_, in_reasoning, tools);
}

std::vector<TokenId> GlmFormat::stop_tokens() const {
  return {markers_.end_of_text, markers_.user, markers_.observation};
}

}  // namespace dsa
