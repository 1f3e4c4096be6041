// text/tools.h: the tools of a conversation, and calls of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dsa {

// A tool that a model may call.
struct Tool {
  std::string name;
  std::string json;                   // {"type": "function", "function": {...}}, as the host ordered it
  std::string_view function() const;  // the inner object
  // The type of a parameter as its schema names it; empty if it does not.
  std::string parameter_type(std::string_view parameter) const;
};

// A call, as an answer makes it or a host tells of it.
struct ToolCall {
  std::string id, name;
  std::string arguments;    // JSON if is_valid
  bool is_complete = true;  // false: the answer ended within
  bool is_valid = true;
};

// A list of {"name", "description", "parameters"}, or of {"type": "function", "function": {...}} around that.
// Code::json names the path; Code::unsupported a tool of another type; Code::argument a name that comes twice.
Result<std::vector<Tool>> tools_from_json(std::string_view text);

// Whether arguments are what every tool takes: one JSON object, no key in it twice.
Status check_arguments(std::string_view arguments);

}  // namespace dsa
