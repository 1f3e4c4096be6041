// io/json.h: JSON from hostile files, through nlohmann-json, with limits and typed errors.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dsa {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_bytes = size_t(64) << 20;
  size_t max_values =
      size_t(4) << 20;  // objects, lists, strings, numbers: what the parsed text costs in memory
  int max_depth = 64;
  bool python_numbers = false;  // also NaN, Infinity, -Infinity as values, as Python writes them (configs)
};

// Code::json with the byte position, Code::limit beyond the limits; `what` names the text in the message. Duplicate keys
// are refused.
Result<Json> parse_json(std::string_view text, const std::string& what, const JsonLimits& limits = {});
// A whole file; not_found and io errors name the path.
Result<Json> read_json_file(const std::string& path, const JsonLimits& limits = {});

// Calls f(key, value) for each member of the object that `text` is, in order, and keeps none of them: for objects with
// half a million members. max_values limits each member; a key that comes twice is for `f` to notice. A failure of `f`
// ends it and is returned.
using JsonMember = std::function<Status(std::string& key, Json& value)>;
Status for_each_member(std::string_view text, const std::string& what, const JsonLimits& limits,
                       const JsonMember& f);

// The text of a value, indented; NaN and infinities as Python writes and reads them.
std::string json_to_text(const Json& json);

// A name out of a hostile file, quoted for a message: shortened, unprintable bytes replaced.
std::string in_quotes(std::string_view name);

// Empties a tree from its leaves, when the scope ends. The destructor of a filled tree allocates (nlohmann-json 3.11
// flattens it first) and must not throw, so without memory it would end the process. Every parsed tree needs one.
class JsonRelease {
 public:
  explicit JsonRelease(Json& json) : json_(json) {}
  ~JsonRelease() { release(json_); }
  JsonRelease(const JsonRelease&) = delete;
  JsonRelease& operator=(const JsonRelease&) = delete;

 private:
  static void release(Json& json) noexcept;

  Json& json_;
};

// Typed access to one object, with errors (Code::model) that name file and key:
// fields.integer("hidden_size", 1, 1 << 20).
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where);  // where: "config.json: text_config"

  bool has(const char* key) const;  // present and not null
  Result<int64_t> integer(const char* key, int64_t low, int64_t high) const;
  Result<int64_t> integer_or(const char* key, int64_t otherwise, int64_t low, int64_t high) const;
  Result<double> number(const char* key) const;
  Result<double> number_or(const char* key, double otherwise) const;
  Result<bool> boolean_or(const char* key, bool otherwise) const;
  Result<std::string> string(const char* key) const;
  Result<std::string> string_or(const char* key, const std::string& otherwise) const;
  Result<std::vector<int64_t>> integers(const char* key, int64_t low, int64_t high) const;  // a list
  Result<std::vector<std::string>> strings(const char* key) const;                          // a list
  Result<JsonFields> object(const char* key) const;
  const Json& json() const { return *object_; }
  const std::string& where() const { return where_; }

 private:
  const Json* object_;
  std::string where_;
};

}  // namespace dsa
