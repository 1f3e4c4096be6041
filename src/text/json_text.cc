#include "text/json_text.h"

#include <cstdint>
#include <cstdio>

#include "io/json.h"

namespace dsa {

namespace {

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Cuts a valid JSON text at its commas and colons.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void skip_space() {
    while (at_ < text_.size() && is_json_space(text_[at_])) ++at_;
  }
  bool skip(char c) {
    skip_space();
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    at_ += is_there;
    return is_there;
  }
  // One whole value.
  std::string_view value() {
    skip_space();
    const size_t begin = at_;
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        string();
        if (depth == 0) break;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_json_space(c))) break;
      ++at_;
      if ((c == '}' || c == ']') && --depth == 0) break;
    }
    return text_.substr(begin, at_ - begin);
  }
  std::string_view string() {
    const size_t begin = at_++;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    at_ = at_ < text_.size() ? at_ + 1 : text_.size();
    return text_.substr(begin, at_ - begin);
  }
  bool is_done() const { return at_ >= text_.size(); }
  char take() { return text_[at_++]; }
  char peek() const { return text_[at_]; }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::pair<std::string, std::string_view>> json_members(std::string_view object) {
  std::vector<std::pair<std::string, std::string_view>> members;
  Scanner scanner(object);
  if (!scanner.skip('{')) return members;
  for (;;) {
    std::string name = json_string(scanner.value());
    if (!scanner.skip(':')) return members;
    const std::string_view value = scanner.value();
    members.emplace_back(std::move(name), value);
    if (!scanner.skip(',')) return members;
  }
}

std::vector<std::string_view> json_elements(std::string_view list) {
  std::vector<std::string_view> elements;
  Scanner scanner(list);
  if (!scanner.skip('[') || scanner.skip(']')) return elements;
  do {
    elements.push_back(scanner.value());
  } while (scanner.skip(','));
  return elements;
}

std::string_view json_member(std::string_view object, std::string_view name) {
  for (const auto& [key, value] : json_members(object))
    if (key == name) return value;
  return {};
}

std::string json_string(std::string_view value) {
  const Json parsed = Json::parse(value, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string();
}

std::string json_respaced(std::string_view value, std::string_view comma, std::string_view colon) {
  std::string out;
  Scanner scanner(value);
  for (scanner.skip_space(); !scanner.is_done(); scanner.skip_space()) {
    if (scanner.peek() == '"') {
      out += '"';
      append_json_escaped(out, json_string(scanner.string()));
      out += '"';
      continue;
    }
    const char c = scanner.take();
    if (c == ',')
      out += comma;
    else if (c == ':')
      out += colon;
    else
      out += c;
  }
  return out;
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (uint8_t(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof escape, "\\u%04x", unsigned(uint8_t(c)));
          out += escape;
        } else {
          out += c;
        }
    }
  }
}

}  // namespace dsa
