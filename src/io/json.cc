#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "io/mapped_file.h"

namespace dsa {

namespace {

// A text whose reader can be asked how far it is, since nlohmann-json tells its handlers no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// NaN and infinities of a text: which of its numbers they are, counted from 0.
struct SpecialNumber {
  size_t ordinal;
  double value;
};

// Replaces the words by numbers of the same length, so that a strict parser reads the text and positions
// stay.
std::vector<SpecialNumber> replace_special_numbers(std::string& text) {
  struct Word {
    std::string_view word, number;
    double value;
  };
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr Word kWords[] = {{"NaN", "0.0", std::numeric_limits<double>::quiet_NaN()},
                                    {"Infinity", "0.000000", kInfinity},
                                    {"-Infinity", "0.0000000", -kInfinity}};
  const auto is_border = [](char c) {
    return std::string_view(" \t\r\n,:[]{}").find(c) != std::string_view::npos;
  };
  const auto is_number = [](char c) { return (c >= '0' && c <= '9') || c == '-'; };

  std::vector<SpecialNumber> found;
  size_t ordinal = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      ++i;
    } else if (is_border(text[i])) {
      ++i;
    } else {
      size_t end = i;
      while (end < text.size() && !is_border(text[end]) && text[end] != '"') ++end;
      const std::string_view token = std::string_view(text).substr(i, end - i);
      const Word* word =
          std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) { return w.word == token; });
      if (word != std::end(kWords)) {
        found.push_back({ordinal++, word->value});
        text.replace(i, end - i, word->number);
      } else if (is_number(token[0])) {
        ++ordinal;
      }
      i = end;
    }
  }
  return found;
}

// What nlohmann-json says of a syntax error, without its prefixes and safe to print.
std::string detail_of(const std::exception& exception) {
  std::string_view text = exception.what();
  for (const std::string_view prefix : {"] ", "column ", ": "}) {
    const size_t at = text.find(prefix);
    if (at != std::string_view::npos) text.remove_prefix(at + prefix.size());
  }
  std::string detail(text.substr(0, 160));
  for (char& c : detail)
    if (c < ' ' || c > '~') c = '?';
  return detail;
}

// Builds values while it checks depth, number of values and duplicate keys. With `member`, the members of the outermost
// object are handed over one by one.
class Builder {
 public:
  Builder(const std::string& what, const JsonLimits& limits, const JsonMember* member)
      : what_(what), limits_(limits), member_(member) {}

  Result<Json> read(std::string_view text) {
    if (text.size() > limits_.max_bytes)
      return error(Code::limit, what_, ": ", text.size(), " bytes of JSON, at most ", limits_.max_bytes)
          .with_room(text.size(), limits_.max_bytes);
    std::string replaced;
    if (limits_.python_numbers && (text.find("NaN") != text.npos || text.find("Infinity") != text.npos)) {
      replaced = text;
      special_numbers_ = replace_special_numbers(replaced);
      text = replaced;
    }
    begin_ = position_ = text.data();
    const char* end = text.data() + text.size();
    const bool whole =
        Json::sax_parse(CountingIterator(begin_, &position_), CountingIterator(end, &position_), this);
    if (!whole) return status_.is_ok() ? fail(Code::json, "not valid JSON") : status_;
    return std::move(root_);
  }

  // The events of nlohmann-json.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add_number(value); }
  bool number_unsigned(uint64_t value) { return add_number(value); }
  bool number_float(double value, const std::string&) { return add_number(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return refuse(Code::json, "binary values are not JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool end_object() { return close(); }
  bool key(std::string& key) {
    key_ = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& exception) {
    position_ = begin_ + (position > 0 ? position - 1 : 0);
    return refuse(Code::json, detail_of(exception));
  }

 private:
  Status fail(Code code, const std::string& detail) {
    const size_t position = size_t(position_ - begin_);
    return error(code, what_, ": at byte ", position, ": ", detail).with_position(position);
  }
  bool refuse(Code code, const std::string& detail) {
    status_ = fail(code, detail);
    return false;
  }

  bool add_number(Json value) {
    if (next_special_ < special_numbers_.size() && special_numbers_[next_special_].ordinal == num_numbers_)
      value = special_numbers_[next_special_++].value;
    ++num_numbers_;
    return add(std::move(value));
  }

  bool add(Json value) {
    Json* place = put(std::move(value));
    return place && complete(place);
  }

  bool open(Json value) {
    if (open_.size() >= size_t(limits_.max_depth))
      return refuse(Code::limit, concat("nested more than ", limits_.max_depth, " deep"));
    Json* place = put(std::move(value));
    if (place) open_.push_back(place);
    return place;
  }

  bool close() {
    Json* value = open_.back();
    open_.pop_back();
    return complete(value);
  }

  // Null after a refusal.
  Json* put(Json value) {
    if (member_ && open_.empty() && !value.is_object()) {
      refuse(Code::json, "expected an object");
      return nullptr;
    }
    if (++num_values_ > limits_.max_values) {
      refuse(Code::limit, concat("more than ", limits_.max_values, " values"));
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) {
      auto& list = open_.back()->get_ref<Json::array_t&>();
      return &list.emplace_back(std::move(value));
    }
    auto& object = open_.back()->get_ref<Json::object_t&>();
    const auto [member, is_new] = object.try_emplace(key_, std::move(value));
    if (!is_new) refuse(Code::json, concat("the key ", in_quotes(key_), " comes twice in one object"));
    return is_new ? &member->second : nullptr;
  }

  bool complete(Json* value) {
    if (!member_ || open_.size() != 1) return true;
    auto& members = root_.get_ref<Json::object_t&>();
    std::string key = members.begin()->first;  // the only one
    status_ = (*member_)(key, *value);
    { const JsonRelease release(*value); }
    members.clear();
    num_values_ = 0;
    return status_.is_ok();
  }

  const std::string& what_;
  const JsonLimits& limits_;
  const JsonMember* member_;
  Json root_;
  JsonRelease release_root_{root_};
  std::vector<Json*> open_;  // from the outermost; only the last one grows, so the others stay where they are
  std::string key_;
  std::vector<SpecialNumber> special_numbers_;
  size_t next_special_ = 0, num_numbers_ = 0, num_values_ = 0;
  const char* begin_ = nullptr;
  const char* position_ = nullptr;
  Status status_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& what, const JsonLimits& limits) {
  return Builder(what, limits, nullptr).read(text);
}

Result<Json> read_json_file(const std::string& path, const JsonLimits& limits) {
  DSA_ASSIGN(const auto file, MappedFile::open(path));
  return parse_json(file->text(), path, limits);
}

Status for_each_member(std::string_view text, const std::string& what, const JsonLimits& limits,
                       const JsonMember& f) {
  return Builder(what, limits, &f).read(text).status();
}

namespace {

void add_text(const Json& json, const std::string& indent, std::string& out) {
  const std::string inner = indent + "  ";
  if (json.is_structured() && !json.empty()) {
    out += json.is_object() ? "{" : "[";
    const char* between = "\n";
    for (const auto& [key, value] : json.items()) {
      out += between + inner;
      if (json.is_object()) out += Json(key).dump() + ": ";
      add_text(value, inner, out);
      between = ",\n";
    }
    out += "\n" + indent + (json.is_object() ? "}" : "]");
  } else if (json.is_number_float() && !std::isfinite(json.get<double>())) {
    const double value = json.get<double>();
    out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  } else {
    out += json.dump();
  }
}

}  // namespace

std::string json_to_text(const Json& json) {
  std::string text;
  add_text(json, "", text);
  return text + "\n";
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kMax = 160;
  std::string text = "'";
  size_t n = std::min(name.size(), kMax);
  while (n < name.size() && n > 0 && (uint8_t(name[n]) & 0xC0) == 0x80) --n;  // no half of a character
  for (const char c : name.substr(0, n)) text += uint8_t(c) < 0x20 || c == 0x7F ? '?' : c;
  return text + (n < name.size() ? "...'" : "'");
}

void JsonRelease::release(Json& json) noexcept {
  if (json.is_array()) {
    auto& list = json.get_ref<Json::array_t&>();
    for (Json& child : list) release(child);  // parse_json limited the depth
    list.clear();
  } else if (json.is_object()) {
    auto& members = json.get_ref<Json::object_t&>();
    for (auto& member : members) release(member.second);
    members.clear();
  }
}

JsonFields::JsonFields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {}

namespace {

const Json* find_value(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// The value as it stands in the file, for a message.
std::string found(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return concat("a list of ", value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_number_float()) return concat(value.get<double>());  // dump() writes null for infinities
  return value.dump();
}

// The integer that `value` is, within [low, high].
Result<int64_t> to_integer(const Json& value, const std::string& name, int64_t low, int64_t high) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t(std::numeric_limits<int64_t>::max()));
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
    return error(Code::model, name, " is ", found(value), ", expected an integer from ", low, " to ", high);
  return value.get<int64_t>();
}

}  // namespace

#define DSA_FIELD(value)                                    \
  const Json* value = find_value(*object_, key);            \
  const std::string name = concat(where_, ": '", key, "'"); \
  if (!value) return error(Code::model, name, " is missing")

bool JsonFields::has(const char* key) const { return find_value(*object_, key); }

Result<int64_t> JsonFields::integer(const char* key, int64_t low, int64_t high) const {
  DSA_FIELD(value);
  return to_integer(*value, name, low, high);
}

Result<int64_t> JsonFields::integer_or(const char* key, int64_t otherwise, int64_t low, int64_t high) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

Result<double> JsonFields::number(const char* key) const {
  DSA_FIELD(value);
  if (!value->is_number()) return error(Code::model, name, " is ", found(*value), ", expected a number");
  return value->get<double>();
}

Result<double> JsonFields::number_or(const char* key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

Result<bool> JsonFields::boolean_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  DSA_FIELD(value);
  if (!value->is_boolean())
    return error(Code::model, name, " is ", found(*value), ", expected true or false");
  return value->get<bool>();
}

Result<std::string> JsonFields::string(const char* key) const {
  DSA_FIELD(value);
  if (!value->is_string()) return error(Code::model, name, " is ", found(*value), ", expected a string");
  return value->get<std::string>();
}

Result<std::string> JsonFields::string_or(const char* key, const std::string& otherwise) const {
  return has(key) ? string(key) : otherwise;
}

Result<std::vector<int64_t>> JsonFields::integers(const char* key, int64_t low, int64_t high) const {
  DSA_FIELD(value);
  if (!value->is_array())
    return error(Code::model, name, " is ", found(*value), ", expected a list of integers");
  std::vector<int64_t> list;
  list.reserve(value->size());
  for (const Json& item : *value) {
    DSA_ASSIGN(const int64_t integer, to_integer(item, concat(name, "[", list.size(), "]"), low, high));
    list.push_back(integer);
  }
  return list;
}

Result<std::vector<std::string>> JsonFields::strings(const char* key) const {
  DSA_FIELD(value);
  if (!value->is_array())
    return error(Code::model, name, " is ", found(*value), ", expected a list of strings");
  std::vector<std::string> list;
  list.reserve(value->size());
  for (const Json& item : *value) {
    if (!item.is_string())
      return error(Code::model, name, "[", list.size(), "] is ", found(item), ", expected a string");
    list.push_back(item.get<std::string>());
  }
  return list;
}

Result<JsonFields> JsonFields::object(const char* key) const {
  DSA_FIELD(value);
  if (!value->is_object()) return error(Code::model, name, " is ", found(*value), ", expected an object");
  return JsonFields(*value, concat(where_, where_.find(": ") == std::string::npos ? ": " : ".", key));
}

}  // namespace dsa
