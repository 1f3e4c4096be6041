#include "text/chat_json.h"

#include <array>

#include "io/json.h"
#include "text/json_text.h"

namespace dsa {

namespace {

Status wrong_shape(const std::string& path, const char* expected) {
  return error(Code::json, path, " is not ", expected).with_fix(Fix::input);
}

Result<Role> role_of(const std::string& path, const Json& value) {
  if (!value.is_string()) return wrong_shape(path, "a string");
  const auto& name = value.get_ref<const std::string&>();
  if (name == "system") return Role::system;
  if (name == "user") return Role::user;
  if (name == "assistant") return Role::assistant;
  if (name == "tool") return Role::tool;
  return error(Code::unsupported, path, " is ", in_quotes(name),
               ", expected system, user, assistant or tool");
}

// {"type": "image_url", "image_url": {"url": NAME}}; nothing is fetched, the host binds the name to a picture.
Result<MessagePart> image_of(const std::string& path, const Json& value) {
  const auto image = value.find("image_url");
  if (image == value.end() || !image->is_object()) return wrong_shape(path, "an object");
  const auto url = image->find("url");
  if (url == image->end() || !url->is_string()) return wrong_shape(path + ".url", "a string");
  MessagePart part;
  part.kind = MessagePart::Kind::image;
  part.text = url->get<std::string>();
  if (part.text.empty()) return wrong_shape(path + ".url", "a name");
  return part;
}

Result<MessagePart> part_of(const std::string& path, const Json& value) {
  if (!value.is_object()) return wrong_shape(path, "an object");
  const auto type = value.find("type");
  if (type == value.end() || !type->is_string()) return wrong_shape(path + ".type", "a string");
  const auto& name = type->get_ref<const std::string&>();
  if (name == "image_url") return image_of(path + ".image_url", value);
  if (name != "text")
    return error(Code::unsupported, path, " has type ", in_quotes(name), ", expected text or image_url");
  const auto text = value.find("text");
  if (text == value.end() || !text->is_string()) return wrong_shape(path + ".text", "a string");
  MessagePart part;
  part.text = text->get<std::string>();
  return part;
}

// {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}; the arguments may be an object
// as well.
Result<ToolCall> call_of(const std::string& path, const Json& value) {
  if (!value.is_object()) return wrong_shape(path, "an object");
  if (const auto type = value.find("type"); type != value.end() && *type != "function")
    return error(Code::unsupported, path, ".type is ", in_quotes(type->dump()), ", expected function");
  const auto function = value.find("function");
  if (function == value.end() || !function->is_object()) return wrong_shape(path + ".function", "an object");
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) return wrong_shape(path + ".function.name", "a string");
  ToolCall call;
  call.name = name->get<std::string>();
  if (const auto id = value.find("id"); id != value.end() && !id->is_null()) {
    if (!id->is_string()) return wrong_shape(path + ".id", "a string");
    call.id = id->get<std::string>();
  }
  const auto arguments = function->find("arguments");
  if (arguments == function->end())
    return error(Code::json, path, ".function.arguments is missing").with_fix(Fix::input);
  if (arguments->is_string())
    call.arguments = arguments->get<std::string>();
  else if (arguments->is_object())
    call.arguments = json_respaced(arguments->dump(), ", ", ": ");
  else
    return wrong_shape(path + ".function.arguments", "a string or an object");
  return call;
}

Result<Message> message_of(const std::string& path, const Json& value) {
  if (!value.is_object()) return wrong_shape(path, "an object");
  Message message;
  bool has_role = false, has_content = false;
  for (const auto& [key, member] : value.items()) {
    const std::string member_path = concat(path, ".", key.substr(0, 64));
    if (key == "role") {
      DSA_ASSIGN(message.role, role_of(member_path, member));
      has_role = true;
    } else if (key == "content" && member.is_string()) {
      message.parts.emplace_back().text = member.get<std::string>();
      has_content = true;
    } else if (key == "content") {
      if (member.is_null()) continue;
      if (!member.is_array()) return wrong_shape(member_path, "a string or a list");
      for (const Json& part : member) {
        DSA_ASSIGN(MessagePart read, part_of(concat(member_path, "[", message.parts.size(), "]"), part));
        message.parts.push_back(std::move(read));
      }
      has_content = true;
    } else if (key == "name") {
      if (member.is_null()) continue;
      if (!member.is_string()) return wrong_shape(member_path, "a string");
      message.name = member.get<std::string>();
    } else if (member.is_null()) {
      continue;
    } else if (key == "reasoning_content" || key == "tool_call_id") {
      if (!member.is_string()) return wrong_shape(member_path, "a string");
      (key == "tool_call_id" ? message.call_id : message.reasoning) = member.get<std::string>();
    } else if (key == "tool_calls") {
      if (!member.is_array()) return wrong_shape(member_path, "a list");
      for (const Json& value_of_call : member) {
        DSA_ASSIGN(ToolCall call,
                   call_of(concat(member_path, "[", message.calls.size(), "]"), value_of_call));
        message.calls.push_back(std::move(call));
      }
    } else {
      return error(Code::unsupported, path, " has ", in_quotes(key),
                   ", expected role, content, name, reasoning_content, tool_calls or tool_call_id");
    }
  }
  if (!has_role) return error(Code::json, path, ".role is missing").with_fix(Fix::input);
  const bool is_answer = message.role == Role::assistant;
  if (!is_answer && (!message.calls.empty() || !message.reasoning.empty()))
    return error(Code::json, path, " has reasoning or calls, and is no message of the assistant")
        .with_fix(Fix::input);
  if (!has_content && message.calls.empty())
    return error(Code::json, path, ".content is missing").with_fix(Fix::input);
  return message;
}

}  // namespace

Result<ChatJson> chat_from_json(std::string_view text) {
  DSA_ASSIGN(Json json, parse_json(text, "chat JSON"));
  const JsonRelease release(json);
  ChatJson chat;
  const Json* list = &json;
  if (json.is_object()) {
    // What else a request may hold; sampling settings and the like do not change the prompt.
    for (const char* key : {"tool_choice", "functions", "function_call", "response_format"})
      if (const auto found = json.find(key); found != json.end() && !found->empty() && *found != "auto")
        return error(Code::unsupported, "chat JSON: '", key, "' is not read");
    if (const auto found = json.find("tools"); found != json.end() && !found->is_null()) {
      DSA_ASSIGN(chat.tools, tools_from_json(json_member(text, "tools")));
    }
    const auto found = json.find("messages");
    if (found == json.end()) return error(Code::json, "chat JSON: messages is missing").with_fix(Fix::input);
    list = &*found;
  }
  if (!list->is_array()) return wrong_shape("chat JSON: messages", "a list");
  chat.messages.reserve(list->size());
  for (const Json& value : *list) {
    DSA_ASSIGN(Message message, message_of(concat("chat JSON: messages[", chat.messages.size(), "]"), value));
    chat.messages.push_back(std::move(message));
  }
  return chat;
}

Result<std::vector<Message>> messages_from_json(std::string_view text) {
  DSA_ASSIGN(ChatJson chat, chat_from_json(text));
  if (!chat.tools.empty()) return error(Code::unsupported, "chat JSON: 'tools' is not read");
  return std::move(chat.messages);
}

}  // namespace dsa
