#include "text/harmony_format.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "io/json.h"
#include "text/chat_writer.h"
#include "text/json_text.h"

namespace dsa {

namespace {

constexpr size_t kMaxHeaderBytes = 512;  // of a message that the reader remembers

std::string today() {
  const std::chrono::year_month_day date(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", int(date.year()), unsigned(date.month()),
                unsigned(date.day()));
  return text;
}

bool is_required(std::string_view schema, std::string_view name) {
  const std::vector<std::string_view> required = json_elements(json_member(schema, "required"));
  return std::any_of(required.begin(), required.end(),
                     [&](std::string_view value) { return json_string(value) == name; });
}

// A JSON schema as a TypeScript type, as the vendor's template writes it.
std::string type_of(std::string_view schema) {
  if (const auto choices = json_elements(json_member(schema, "enum")); !choices.empty()) {
    std::string out;
    for (const std::string_view choice : choices) out += concat(out.empty() ? "" : " | ", choice);
    return out;
  }
  const std::string type = json_string(json_member(schema, "type"));
  if (type == "integer") return "number";
  if (type == "string" || type == "number" || type == "boolean" || type == "null") return type;
  if (type == "array") {
    const std::string_view items = json_member(schema, "items");
    return (items.empty() ? std::string("any") : type_of(items)) + "[]";
  }
  const auto properties = json_members(json_member(schema, "properties"));
  if (type != "object" || properties.empty()) return type == "object" ? "object" : "any";
  std::string out = "{\n";
  for (const auto& [name, property] : properties)
    out += concat(&property == &properties[0].second ? "" : ", ", name,
                  is_required(schema, name) ? ": " : "?: ", type_of(property));
  return out + "}";
}

std::string comment_of(std::string_view described) {
  const std::string text = json_string(json_member(described, "description"));
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += concat("// ", text.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return out;
}

std::string declaration_of(const Tool& tool) {
  const std::string_view schema = json_member(tool.function(), "parameters");
  const auto properties = json_members(json_member(schema, "properties"));
  std::string out = comment_of(tool.function());
  if (properties.empty()) return concat(out, "type ", tool.name, " = () => any;\n\n");
  out += concat("type ", tool.name, " = (_: {\n");
  for (const auto& [name, property] : properties) {
    out +=
        concat(comment_of(property), name, is_required(schema, name) ? ": " : "?: ", type_of(property), ",");
    if (const std::string_view value = json_member(property, "default"); !value.empty())
      out += concat(" // default: ", value);
    out += '\n';
  }
  return out + "}) => any;\n\n";
}

// The name behind "to=functions." in a header; empty if it has no such recipient.
std::string_view recipient_of(std::string_view header) {
  constexpr std::string_view kMark = "to=functions.";
  const size_t at = header.find(kMark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + kMark.size());
  return rest.substr(0, rest.find_first_of(" \t\n<"));
}

class HarmonyReader : public AnswerReader {
 public:
  HarmonyReader(std::shared_ptr<const Tokenizer> tokenizer, const HarmonyFormat::Markers& markers,
                bool in_reasoning)
      : tokenizer_(std::move(tokenizer)),
        markers_(markers),
        within_(in_reasoning ? Within::header : Within::body) {
    header_.reserve(kMaxHeaderBytes);
  }

  Piece push(TokenId id) override {
    if (within_ == Within::ended || id < 0) return {};
    const HarmonyFormat::Markers& m = markers_;
    if (id == m.final_end || id == m.end_of_text) {
      const bool was_open = within_ != Within::between;
      within_ = Within::ended;
      is_replaced_ = was_open;
      return {.ends_turn = true, .is_dropped = true};
    }
    if (id == m.call) {
      const bool ends_call = within_ == Within::body && channel_ == Channel::tool;
      within_ = Within::ended;
      return {.channel = Channel::tool, .ends_call = ends_call, .ends_turn = true};
    }
    if (id == m.start) {
      within_ = Within::header;
      header_.clear();
      channel_name_begin_ = std::string::npos;
    } else if (id == m.end) {
      within_ = Within::between;
    } else if (id == m.message && within_ == Within::header) {
      return begin_body();
    } else if (id == m.channel && within_ == Within::header) {
      append_header(" ");
      channel_name_begin_ = header_.size();
    } else if (id == m.constrain && within_ == Within::header) {
      append_header(" ");
    } else {
      return read_text(id);
    }
    return {};
  }

  std::vector<TokenId> closing() const override {
    const HarmonyFormat::Markers& m = markers_;
    switch (within_) {
      case Within::header: return {m.message, m.end};
      case Within::body: return {m.end};
      case Within::between: return {};
      case Within::ended: return is_replaced_ ? std::vector<TokenId>{m.end} : std::vector<TokenId>();
    }
    return {};
  }

 private:
  enum class Within { header, body, between, ended };

  void append_header(std::string_view bytes) {
    header_ += bytes.substr(0, std::min(bytes.size(), kMaxHeaderBytes - header_.size()));
  }

  Piece begin_body() {
    within_ = Within::body;
    channel_ = Channel::answer;
    const std::string_view header = header_;
    if (channel_name_begin_ != std::string::npos) {
      const std::string_view name = header.substr(std::min(channel_name_begin_, header.size()));
      if (name.substr(0, name.find_first_of(" \t\n")) == "analysis") channel_ = Channel::reasoning;
    }
    const std::string_view tool = recipient_of(header);
    if (tool.empty()) return {};
    channel_ = Channel::tool;
    return {.begins_call = true, .channel = Channel::tool, .name = tool};
  }

  Piece read_text(TokenId id) {
    const std::string_view bytes = tokenizer_->bytes(id);
    if (within_ == Within::header) return append_header(bytes), Piece();
    const Channel channel =
        within_ == Within::body ? channel_ : Channel::answer;  // a model that forgot its format
    return {.is_text = !bytes.empty(), .channel = channel, .text = bytes};
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  HarmonyFormat::Markers markers_;
  Within within_;
  Channel channel_ = Channel::answer;
  std::string header_;
  size_t channel_name_begin_ = std::string::npos;
  bool is_replaced_ = false;
};

}  // namespace

Result<std::shared_ptr<const ChatFormat>> HarmonyFormat::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                                std::string_view chat_template) {
  DSA_TRY(check_template(
      chat_template, "harmony",
      {"<|start|>", "<|message|>", "<|channel|>", "<|end|>", "analysis", "commentary", "final"},
      {"<|im_start|>", "<|im_middle|>", "[gMASK]", "<|open|>"}));
  auto format = std::make_shared<HarmonyFormat>();
  Markers& m = format->markers_;
  DSA_ASSIGN(m.start, require_control(*tokenizer, "<|start|>"));
  DSA_ASSIGN(m.channel, require_control(*tokenizer, "<|channel|>"));
  DSA_ASSIGN(m.constrain, require_control(*tokenizer, "<|constrain|>"));
  DSA_ASSIGN(m.message, require_control(*tokenizer, "<|message|>"));
  DSA_ASSIGN(m.end, require_control(*tokenizer, "<|end|>"));
  DSA_ASSIGN(m.final_end, require_control(*tokenizer, "<|return|>"));
  DSA_ASSIGN(m.call, require_control(*tokenizer, "<|call|>"));
  m.end_of_text = tokenizer->control_id("<|endoftext|>").value_or(-1);
  format->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

Result<RenderedChat> HarmonyFormat::render(const std::vector<Message>& messages, std::span<const ImageSlot>,
                                           const ChatOptions& options) const {
  const Markers& m = markers_;
  ChatWriter writer(*tokenizer_);
  const auto begin = [&](std::string_view role, std::string_view channel) {
    writer.control(m.start);
    writer.text(role);
    if (!channel.empty()) {
      writer.control(m.channel);
      writer.text(channel);
    }
    writer.control(m.message);
  };
  const bool has_tools = !options.tools.empty() && options.may_call;
  const std::vector<const Message*> order = in_call_order(messages, options.calls);
  if (options.begins) {
    begin("system", "");
    writer.text(concat(
        "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent "
        "date: ",
        options.date.empty() ? today() : options.date,
        "\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included "
        "for every message.",
        has_tools ? "\nCalls to these tools must go to the commentary channel: 'functions'." : ""));
    writer.control(m.end);
  }
  // What the system says first and the tools are one message of the developer.
  const bool has_instructions = !order.empty() && order[0]->role == Role::system;
  if (has_instructions || has_tools) {
    begin("developer", "");
    if (has_instructions) {
      writer.begin_message(0);
      writer.text("# Instructions\n\n");
      writer.parts(*order[0]);
      writer.text("\n\n");
    }
    if (has_tools) {
      writer.text("# Tools\n\n## functions\n\nnamespace functions {\n\n");
      for (const Tool& tool : options.tools) writer.text(declaration_of(tool));
      writer.text("} // namespace functions");
    }
    writer.control(m.end);
  }
  size_t last_final = 0;  // the last answer that calls no tools, counted from 1
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i]->role == Role::assistant && order[i]->calls.empty()) last_final = i + 1;
  for (size_t i = has_instructions ? 1 : 0; i < order.size(); ++i) {
    const Message& message = *order[i];
    writer.begin_message(size_t(&message - messages.data()));
    switch (message.role) {
      case Role::system:
        begin("developer", "");
        writer.text("# Instructions\n\n");
        writer.parts(message);
        writer.text("\n\n");
        writer.control(m.end);
        break;
      case Role::user:
        begin("user", "");
        writer.parts(message);
        writer.control(m.end);
        break;
      case Role::tool: {
        const std::string name = tool_name_of(message, messages, options.calls);
        if (name.empty())
          writer.fail(error(Code::argument, "a result of the call ", in_quotes(message.call_id),
                            ", and no call has that id")
                          .with_fix(Fix::input));
        begin(concat("functions.", name, " to=assistant"), "commentary");
        writer.parts(message);
        writer.control(m.end);
        break;
      }
      case Role::assistant:
        if (!message.reasoning.empty() && i >= last_final) {
          begin("assistant", "analysis");
          writer.text(message.reasoning);
          writer.control(m.end);
        }
        if (!message.parts.empty() || message.calls.empty()) {
          begin("assistant", message.calls.empty() ? "final" : "commentary");
          writer.parts(message);
          writer.control(m.end);
        }
        for (const ToolCall& call : message.calls) {
          writer.control(m.start);
          writer.text("assistant");
          writer.control(m.channel);
          writer.text(concat("commentary to=functions.", call.name, " "));
          writer.control(m.constrain);
          writer.text("json");
          writer.control(m.message);
          writer.text(call.arguments);
          writer.control(m.call);
        }
        break;
    }
  }
  if (options.ask && options.thinking) {
    writer.control(m.start);
    writer.text("assistant");
  } else if (options.ask) {
    begin("assistant", "final");
  }
  DSA_ASSIGN(RenderedChat chat, writer.finish());
  chat.in_reasoning = options.ask && options.thinking;
  return chat;
}

std::unique_ptr<AnswerReader> HarmonyFormat::reader(bool in_reasoning, std::span<const Tool>) const {
  return std::make_unique<HarmonyReader>(tokenizer_, markers_, in_reasoning);
}

std::vector<TokenId> HarmonyFormat::stop_tokens() const {
  std::vector<TokenId> ids = {markers_.final_end, markers_.call};
  if (markers_.end_of_text >= 0) ids.push_back(markers_.end_of_text);
  return ids;
}

}  // namespace dsa
