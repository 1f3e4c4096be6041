#include "text/tools.h"

#include <algorithm>

#include "io/json.h"
#include "text/json_text.h"

namespace dsa {

namespace {

constexpr size_t kMaxTools = 4096;
constexpr size_t kMaxNameBytes = 256;

Status wrong_shape(const std::string& path, const char* expected) {
  return error(Code::json, path, " is not ", expected).with_fix(Fix::input);
}

// Formats write a name next to their own marks, so it must be a plain one.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '-' ||
           c == '.' || c == '/';
  });
}

Result<Tool> tool_of(const std::string& path, const Json& json, std::string_view text) {
  if (!json.is_object()) return wrong_shape(path, "an object");
  const bool is_wrapped = json.contains("function");
  if (is_wrapped) {
    if (!json["function"].is_object()) return wrong_shape(path + ".function", "an object");
    text = json_member(text, "function");
  }
  if (const auto type = json.find("type"); type != json.end() && *type != "function")
    return error(Code::unsupported, path, ".type is ", in_quotes(type->dump()), ", expected function");
  const Json& function = is_wrapped ? json["function"] : json;
  const std::string inner = is_wrapped ? path + ".function" : path;
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string()) return wrong_shape(inner + ".name", "a string");
  Tool tool;
  tool.name = name->get<std::string>();
  if (!is_plain_name(tool.name))
    return error(Code::json, inner, ".name is ", in_quotes(tool.name),
                 ", expected letters, digits, '_', '-', '.' and '/'")
        .with_fix(Fix::input);
  if (const auto described = function.find("description");
      described != function.end() && !described->is_string() && !described->is_null())
    return wrong_shape(inner + ".description", "a string");
  if (const auto schema = function.find("parameters");
      schema != function.end() && !schema->is_object() && !schema->is_null())
    return wrong_shape(inner + ".parameters", "an object");
  tool.json = concat(R"({"type":"function","function":)", json_respaced(text, ",", ":"), "}");
  return tool;
}

}  // namespace

std::string_view Tool::function() const { return json_member(json, "function"); }

std::string Tool::parameter_type(std::string_view parameter) const {
  const std::string_view properties = json_member(json_member(function(), "parameters"), "properties");
  return json_string(json_member(json_member(properties, parameter), "type"));
}

Result<std::vector<Tool>> tools_from_json(std::string_view text) {
  DSA_ASSIGN(Json json, parse_json(text, "tools"));
  const JsonRelease release(json);
  if (!json.is_array()) return wrong_shape("tools", "a list");
  if (json.size() > kMaxTools)
    return error(Code::limit, json.size(), " tools, expected at most ", kMaxTools)
        .with_fix(Fix::shorten)
        .with_room(json.size(), kMaxTools);
  const std::vector<std::string_view> elements = json_elements(text);
  std::vector<Tool> tools;
  for (size_t i = 0; i < json.size(); ++i) {
    DSA_ASSIGN(Tool tool, tool_of(concat("tools[", i, "]"), json[i], elements[i]));
    for (size_t other = 0; other < tools.size(); ++other)
      if (tools[other].name == tool.name)
        return error(Code::argument, "tools[", other, "] and tools[", i, "] are both named ",
                     in_quotes(tool.name))
            .with_fix(Fix::input);
    tools.push_back(std::move(tool));
  }
  return tools;
}

Status check_arguments(std::string_view arguments) {
  DSA_ASSIGN(Json json, parse_json(arguments, "the arguments"));
  const JsonRelease release(json);
  return json.is_object() ? Status::ok() : wrong_shape("the arguments", "an object");
}

}  // namespace dsa
