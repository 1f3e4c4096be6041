#include "text/utf8_stream.h"

#include <algorithm>
#include <cstdint>

namespace dsa {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Unit {
  enum class Kind { whole, unfinished, invalid };
  Kind kind;
  size_t size;  // bytes it takes, at least 1
};

// What `text` begins with; not empty. Table 3-7 of the Unicode standard.
Unit first_unit(std::string_view text) {
  const uint8_t lead = uint8_t(text[0]);
  if (lead < 0x80) return {Unit::Kind::whole, 1};
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0) return {Unit::Kind::invalid, 1};
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {Unit::Kind::unfinished, i};
    const bool is_second = i == 1;
    const uint8_t low = is_second && lead == 0xE0 ? 0xA0 : is_second && lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = is_second && lead == 0xED ? 0x9F : is_second && lead == 0xF4 ? 0x8F : 0xBF;
    if (uint8_t(text[i]) < low || uint8_t(text[i]) > high) return {Unit::Kind::invalid, i};
  }
  return {Unit::Kind::whole, size};
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Unit unit = first_unit(text.substr(at));
    if (unit.kind != Unit::Kind::whole) return at;
    at += unit.size;
  }
  return std::string_view::npos;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  size_t begin = 0;  // of the whole code points that are not yet in `out`
  for (size_t at = 0; at < bytes.size();) {
    const Unit unit = first_unit(bytes.substr(at));
    if (unit.kind != Unit::Kind::whole) {
      out += bytes.substr(begin, at - begin);
      begin = at + unit.size;
      if (unit.kind == Unit::Kind::invalid)
        out += kReplacement;
      else
        pending_ = bytes.substr(at);
    }
    at += unit.size;
  }
  out += bytes.substr(begin);
}

void Utf8Stream::finish(std::string& out) {
  if (!pending_.empty()) out += kReplacement;
  pending_.clear();
}

}  // namespace dsa
