#include "text/deepseek_format.h"

#include "text/chat_writer.h"

namespace dsa {

namespace {

constexpr size_t kMaxNameBytes = 256;

class DeepseekReader : public AnswerReader {
 public:
  DeepseekReader(std::shared_ptr<const Tokenizer> tokenizer, const DeepseekFormat::Markers& markers,
                 bool in_reasoning)
      : tokenizer_(std::move(tokenizer)),
        markers_(markers),
        within_(in_reasoning ? Within::reasoning : Within::answer) {
    name_.reserve(kMaxNameBytes);
  }

  Piece push(TokenId id) override {
    if (has_ended_ || id < 0) return {};
    const DeepseekFormat::Markers& m = markers_;
    if (id == m.end) {
      has_ended_ = true;
      return {.ends_turn = true};
    }
    if (id == m.think && within_ == Within::answer) return within_ = Within::reasoning, Piece();
    if (id == m.end_think && within_ == Within::reasoning) return within_ = Within::answer, Piece();
    if (id == m.calls) return within_ = Within::calls, Piece();
    if (id == m.end_calls) return within_ = Within::answer, Piece();
    if (id == m.call) return within_ = Within::name, name_.clear(), Piece();
    if (id == m.separator && within_ == Within::name) {
      within_ = Within::arguments;
      return {.begins_call = true, .channel = Channel::tool, .name = trimmed(name_)};
    }
    if (id == m.end_call) {
      const bool was_open = within_ == Within::arguments;
      if (within_ >= Within::calls) within_ = Within::calls;
      return {.channel = Channel::tool, .ends_call = was_open};
    }
    const std::string_view bytes = tokenizer_->bytes(id);
    if (within_ == Within::name) {
      name_ += bytes.substr(0, std::min(bytes.size(), kMaxNameBytes - name_.size()));
      return {};
    }
    return {.is_text = !bytes.empty(), .channel = channel(), .text = bytes};
  }

  std::vector<TokenId> closing() const override {
    std::vector<TokenId> ids;
    if (has_ended_) return ids;
    if (within_ == Within::reasoning) ids.push_back(markers_.end_think);
    if (within_ == Within::name || within_ == Within::arguments) ids.push_back(markers_.end_call);
    if (within_ >= Within::calls) ids.push_back(markers_.end_calls);
    ids.push_back(markers_.end);
    return ids;
  }

 private:
  enum class Within { answer, reasoning, calls, name, arguments };

  Channel channel() const {
    if (within_ == Within::answer) return Channel::answer;
    return within_ == Within::reasoning ? Channel::reasoning : Channel::tool;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  DeepseekFormat::Markers markers_;
  Within within_;
  std::string name_;
  bool has_ended_ = false;
};

}  // namespace

Result<std::shared_ptr<const ChatFormat>> DeepseekFormat::create(std::shared_ptr<const Tokenizer> tokenizer,
                                                                 std::string_view chat_template) {
  auto format = std::make_shared<DeepseekFormat>();
  // The older template of V3 writes no </think>; V4 calls the block of its calls tool_calls.
  format->writes_dsml_ =
      chat_template.empty() || chat_template.find("function_calls") != std::string_view::npos;
  if (format->writes_dsml_)
    DSA_TRY(check_template(chat_template, "DeepSeek V3.2",
                           {"<｜User｜>", "<｜Assistant｜>", "</think>", "｜DSML｜", "<function_results>"},
                           {"<｜tool▁sep｜>", "<|im_start|>", "[gMASK]", "<|open|>", "<|start|>"}));
  else
    DSA_TRY(check_template(chat_template, "DeepSeek V3.1",
                           {"<｜User｜>", "<｜Assistant｜>", "</think>", "<｜tool▁sep｜>"},
                           {"DSML", "<|im_start|>", "[gMASK]", "<|open|>", "<|start|>"}));
  Markers& m = format->markers_;
  DSA_ASSIGN(m.begin, require_control(*tokenizer, "<｜begin▁of▁sentence｜>"));
  DSA_ASSIGN(m.end, require_control(*tokenizer, "<｜end▁of▁sentence｜>"));
  DSA_ASSIGN(m.user, require_control(*tokenizer, "<｜User｜>"));
  DSA_ASSIGN(m.assistant, require_control(*tokenizer, "<｜Assistant｜>"));
  DSA_ASSIGN(m.think, require_control(*tokenizer, "<think>"));
  DSA_ASSIGN(m.end_think, require_control(*tokenizer, "</think>"));
  const struct {
    const char* name;
    TokenId* id;
  } optional[] = {{"<｜tool▁calls▁begin｜>", &m.calls},    {"<｜tool▁calls▁end｜>", &m.end_calls},
                  {"<｜tool▁call▁begin｜>", &m.call},      {"<｜tool▁sep｜>", &m.separator},
                  {"<｜tool▁call▁end｜>", &m.end_call},    {"<｜tool▁output▁begin｜>", &m.output},
                  {"<｜tool▁output▁end｜>", &m.end_output}};
  bool has_all = true;
  for (const auto& marker : optional) {
    *marker.id = tokenizer->control_id(marker.name).value_or(-1);
    has_all = has_all && *marker.id >= 0;
  }
  if (!has_all)
    for (const auto& marker : optional) *marker.id = -1;
  format->dsml_ = {tokenizer->control_id("｜DSML｜").value_or(-1), m.end, m.think, m.end_think};
  format->tokenizer_ = std::move(tokenizer);
  return std::shared_ptr<const ChatFormat>(std::move(format));
}

Result<RenderedChat> DeepseekFormat::render(const std::vector<Message>& messages, std::span<const ImageSlot>,
                                            const ChatOptions& options) const {
  const Markers& m = markers_;
  ChatWriter writer(*tokenizer_);
  const auto need_calls = [&] {
    if (m.call < 0) writer.fail(error(Code::unsupported, "the tokenizer has no tokens for calls of tools"));
  };
  const bool declares = !options.tools.empty() && options.may_call;
  if (declares && !writes_dsml_)
    writer.fail(
        error(Code::unsupported,
              "this chat format has no place for declarations of tools; write them into the system message")
            .with_fix(Fix::input));
  if (options.begins) writer.control(m.begin);
  const std::vector<const Message*> order = in_call_order(messages, options.calls);
  size_t last_user = 0;
  for (size_t i = 0; i < order.size(); ++i)
    if (order[i]->role == Role::user) last_user = i;
  // Declarations stand behind the first system message, or behind one without text.
  const bool begins_with_system = !order.empty() && order[0]->role == Role::system;
  if (declares && writes_dsml_ && !begins_with_system) write_dsml_tools(writer, dsml_, options.tools);
  bool was_user = false, was_result = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const Message& message = *order[i];
    writer.begin_message(size_t(&message - messages.data()));
    switch (message.role) {
      case Role::system:
        if (i > 0 && order[i - 1]->role == Role::system && !writes_dsml_) writer.text("\n\n");
        break;
      case Role::user: writer.control(m.user); break;
      case Role::assistant:
        if (!was_user && !(writes_dsml_ && was_result)) break;  // it goes on behind the results of its calls
        if (was_user) writer.control(m.assistant);
        if (!message.reasoning.empty() && i > last_user) {
          writer.control(m.think);
          writer.text(message.reasoning);
        }
        writer.control(m.end_think);
        break;
      case Role::tool:
        if (writes_dsml_) {
          writer.text(was_result ? "\n<result>" : "\n\n<function_results>\n<result>");
        } else {
          need_calls();
          writer.control(m.output);
        }
        break;
    }
    was_user = message.role == Role::user;
    was_result = message.role == Role::tool;
    writer.parts(message);
    if (was_result && writes_dsml_) {
      writer.text("</result>");
      if (i + 1 == order.size() || order[i + 1]->role != Role::tool) writer.text("\n</function_results>\n\n");
    } else if (was_result) {
      writer.control(m.end_output);
    }
    if (i == 0 && begins_with_system && declares && writes_dsml_)
      write_dsml_tools(writer, dsml_, options.tools);
    if (!message.calls.empty() && writes_dsml_) {
      write_dsml_calls(writer, dsml_, message.calls);
    } else if (!message.calls.empty()) {
      need_calls();
      writer.control(m.calls);
      for (const ToolCall& call : message.calls) {
        writer.control(m.call);
        writer.text(call.name);
        writer.control(m.separator);
        writer.text(call.arguments);
        writer.control(m.end_call);
      }
      writer.control(m.end_calls);
    }
    if (message.role == Role::assistant) writer.control(m.end);
  }
  const bool is_next = options.ask && (writes_dsml_ || !was_result);
  if (is_next) {
    if (!was_result) writer.control(m.assistant);
    writer.control(options.thinking ? m.think : m.end_think);
  }
  DSA_ASSIGN(RenderedChat chat, writer.finish());
  chat.in_reasoning = is_next && options.thinking;
  return chat;
}

std::unique_ptr<AnswerReader> DeepseekFormat::reader(bool in_reasoning, std::span<const Tool>) const {
  if (writes_dsml_) return dsml_reader(tokenizer_, dsml_, in_reasoning);
  return std::make_unique<DeepseekReader>(tokenizer_, markers_, in_reasoning);
}

}  // namespace dsa
