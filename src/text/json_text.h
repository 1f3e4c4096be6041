// text/json_text.h: JSON that stays text, so that the order in which a host or a model wrote it is kept.
//
// The functions take what parse_json() has accepted.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsa {

// The members of an object and the elements of a list, in their order: names decoded, values as text.
std::vector<std::pair<std::string, std::string_view>> json_members(std::string_view object);
std::vector<std::string_view> json_elements(std::string_view list);
// The value of a member; empty if there is none.
std::string_view json_member(std::string_view object, std::string_view name);
// A string, decoded; empty for another value.
std::string json_string(std::string_view value);

// The same value with these separators and no other space; characters beyond ASCII as themselves. (", ", ": ") is what
// Python's json.dumps() writes, (",", ":") its compact form.
std::string json_respaced(std::string_view value, std::string_view comma, std::string_view colon);

// The inside of a JSON string that says `text`. Any cut of the text may be escaped by itself.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace dsa
