#include "text/kimi_k2_format.h"

#include "text/chat_writer.h"
#include "text/json_text.h"

namespace dsa {

namespace {

constexpr size_t kMaxIdBytes = 256;

// "functions.add:0" is a call of add.
std::string_view name_in_id(std::string_view id) {
  if (id.starts_with("functions.")) id.remove_prefix(10);
  const size_t colon = id.rfind(':');
  const bool has_index = colon != std::string_view::npos && colon + 1 < id.size() &&
                         id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return has_index ? id.substr(0, colon) : id;
}

// Text is answer, within <think> reasoning, within a section of calls tool; the id of a call is no text.
class KimiK2Reader : public AnswerReader {
 public:
  KimiK2Reader(std::shared_ptr<const Tokenizer> tokenizer, const KimiK2Format::Markers& markers,
               bool in_reasoning)
      : tokenizer_(std::move(tokenizer)),
        markers_(markers),
        within_(in_reasoning ? Within::reasoning : Within::answer) {
    id_.reserve(kMaxIdBytes);
  }

  Piece push(TokenId id) override {
    if (has_ended_ || id < 0) return {};
    if (id == markers_.end || id == markers_.end_of_text) {
      has_ended_ = true;
      return {.ends_turn = true};
    }
    if (id == markers_.think && within_ == Within::answer)
      within_ = Within::reasoning;
    else if (id == markers_.end_think && within_ == Within::reasoning)
      within_ = Within::answer;
    else if (id == markers_.section_begin)
      within_ = Within::section;
    else if (id == markers_.section_end)
      within_ = Within::answer;
    else if (id == markers_.call_begin)
      begin_id();
    else if (id == markers_.arguments_begin && within_ == Within::id)
      return begin_arguments();
    else if (id == markers_.call_end)
      return end_call();
    else
      return read_text(id);
    return {};
  }

  std::vector<TokenId> closing() const override {
    std::vector<TokenId> ids;
    if (has_ended_) return ids;
    if (within_ == Within::reasoning) ids.push_back(markers_.end_think);
    if (within_ == Within::id || within_ == Within::arguments) ids.push_back(markers_.call_end);
    if (within_ >= Within::section) ids.push_back(markers_.section_end);
    ids.push_back(markers_.end);
    return ids;
  }

 private:
  enum class Within { answer, reasoning, section, id, arguments };

  void begin_id() {
    within_ = Within::id;
    id_.clear();
  }

  Piece begin_arguments() {
    within_ = Within::arguments;
    const std::string_view id = trimmed(id_);
    return {.begins_call = true, .channel = Channel::tool, .name = name_in_id(id), .id = id};
  }

  Piece end_call() {
    const bool was_open = within_ == Within::arguments;
    if (within_ != Within::answer && within_ != Within::reasoning) within_ = Within::section;
    return {.channel = Channel::tool, .ends_call = was_open};
  }

  Piece read_text(TokenId id) {
    const std::string_view bytes = tokenizer_->bytes(id);
    if (within_ == Within::id) {
      id_ += bytes.substr(0, std::min(bytes.size(), kMaxIdBytes - id_.size()));
      return {};
    }
    const Channel channel = within_ == Within::answer      ? Channel::answer
                            : within_ == Within::reasoning ? Channel::reasoning
                                                           : Channel::tool;
    return {.is_text = !bytes.empty(), .channel = channel, .text = bytes};
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  KimiK2Format::Markers markers_;
  Within within_;
  std::string id_;
  bool has_ended_ = false;
};

// The text of the system message that a template inserts, written in it as one literal; empty if there is none.
std::string default_system_of(std::string_view chat_template) {
  constexpr std::string_view kBegin = "<|im_system|>system<|im_middle|>", kEnd = "<|im_end|>";
  const size_t begin = chat_template.find(kBegin);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = chat_template.substr(begin + kBegin.size());
  const size_t end = rest.find(kEnd);
  if (end == std::string_view::npos || rest.substr(0, end).find_first_of("{}'\"\\") != std::string_view::npos)
    return {};
  return std::string(rest.substr(0, end));
}

}  // namespace

Result<std::shared_ptr<const ChatFormat>> KimiK2Format::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                               std::string_view chat_template) {
  DSA_TRY(check_template(chat_template, "Kimi K2",
                         {"<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"},
                         {"<|im_start|>", "<|start|>", "<|open|>", "[gMASK]", "<｜User｜>"}));
  auto format = std::make_shared<KimiK2Format>();
  Markers& m = format->markers_;
  DSA_ASSIGN(m.user, require_control(*tokenizer, "<|im_user|>"));
  DSA_ASSIGN(m.assistant, require_control(*tokenizer, "<|im_assistant|>"));
  DSA_ASSIGN(m.system, require_control(*tokenizer, "<|im_system|>"));
  DSA_ASSIGN(m.middle, require_control(*tokenizer, "<|im_middle|>"));
  DSA_ASSIGN(m.end, require_control(*tokenizer, "<|im_end|>"));
  const auto optional = [&](const char* name) { return tokenizer->control_id(name).value_or(-1); };
  m.end_of_text = optional("[EOS]");
  m.section_begin = optional("<|tool_calls_section_begin|>");
  m.section_end = optional("<|tool_calls_section_end|>");
  m.call_begin = optional("<|tool_call_begin|>");
  m.arguments_begin = optional("<|tool_call_argument_begin|>");
  m.call_end = optional("<|tool_call_end|>");
  if (m.section_begin < 0 || m.section_end < 0 || m.call_begin < 0 || m.arguments_begin < 0 || m.call_end < 0)
    m.section_begin = m.section_end = m.call_begin = m.arguments_begin = m.call_end = -1;
  m.think = optional("<think>");
  m.end_think = optional("</think>");
  if (m.think < 0 || m.end_think < 0) m.think = m.end_think = -1;
  format->default_system_ = default_system_of(chat_template);
  format->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

Result<RenderedChat> KimiK2Format::render(const std::vector<Message>& messages, std::span<const ImageSlot>,
                                          const ChatOptions& options) const {
  const Markers& m = markers_;
  ChatWriter writer(*tokenizer_);
  const auto begin = [&](TokenId role, std::string_view name) {
    writer.control(role);
    writer.text(name);
    writer.control(m.middle);
  };
  if (!options.tools.empty() && options.may_call) {
    if (!has_tools()) writer.fail(error(Code::unsupported, "the tokenizer has no tokens for calls of tools"));
    begin(m.system, "tool_declare");
    writer.text("[");
    for (const Tool& tool : options.tools)
      writer.text(concat(&tool == options.tools.data() ? "" : ",", tool.json));
    writer.text("]");
    writer.control(m.end);
  }
  if (options.begins && !default_system_.empty() && (messages.empty() || messages[0].role != Role::system)) {
    begin(m.system, "system");
    writer.text(default_system_);
    writer.control(m.end);
  }
  int next_index = 0;  // of a call without an id
  for (const Message* message : in_call_order(messages, options.calls)) {
    writer.begin_message(size_t(message - messages.data()));
    const auto name_or = [&](std::string_view role) { return message->name.empty() ? role : message->name; };
    switch (message->role) {
      case Role::system: begin(m.system, name_or("system")); break;
      case Role::user: begin(m.user, name_or("user")); break;
      case Role::assistant: begin(m.assistant, name_or("assistant")); break;
      case Role::tool:
        begin(m.system, name_or("tool"));
        writer.text(concat("## Return of ", message->call_id, "\n"));
        break;
    }
    if (!message->reasoning.empty()) {
      if (m.think < 0)
        writer.fail(error(Code::unsupported, "this model has no reasoning channel").with_fix(Fix::input));
      writer.control(m.think);
      writer.text(message->reasoning);
      writer.control(m.end_think);
    }
    writer.parts(*message);
    if (!message->calls.empty()) {
      if (!has_tools())
        writer.fail(error(Code::unsupported, "the tokenizer has no tokens for calls of tools"));
      writer.control(m.section_begin);
      for (const ToolCall& call : message->calls) {
        writer.control(m.call_begin);
        writer.text(call.id.empty() ? concat("functions.", call.name, ":", next_index) : call.id);
        writer.control(m.arguments_begin);
        writer.text(call.arguments);
        writer.control(m.call_end);
        ++next_index;
      }
      writer.control(m.section_end);
    }
    writer.control(m.end);
  }
  if (options.ask) begin(m.assistant, "assistant");
  return writer.finish();
}

std::unique_ptr<AnswerReader> KimiK2Format::reader(bool in_reasoning, std::span<const Tool>) const {
  return std::make_unique<KimiK2Reader>(tokenizer_, markers_, in_reasoning && markers_.think >= 0);
}

std::vector<TokenId> KimiK2Format::stop_tokens() const {
  std::vector<TokenId> ids = {markers_.end};
  if (markers_.end_of_text >= 0) ids.push_back(markers_.end_of_text);
  return ids;
}

}  // namespace dsa
