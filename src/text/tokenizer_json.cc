#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "io/json.h"
#include "text/byte_pair_tokenizer.h"

namespace dsa {

namespace {

constexpr size_t kMaxPatterns = 16;
// ByteLevel's own pattern, GPT-2's, where the file says use_regex.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Bytes are written as characters that can be seen: the printable ones of Latin-1 stand for themselves, the others, in
// their order, for U+0100 and up.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      bytes_[is_printable ? byte : next++] = int16_t(byte);
    }
  }
  // False if a character of valid UTF-8 stands for no byte.
  bool decode(std::string_view text, std::string& out) const {
    for (size_t at = 0; at < text.size();) {
      const uint8_t lead = uint8_t(text[at]);
      if (lead >= 0xE0) return false;
      const uint32_t c = lead < 0x80 ? lead : uint32_t(lead & 0x1F) << 6 | (uint8_t(text[at + 1]) & 0x3F);
      if (c >= std::size(bytes_) || bytes_[c] < 0) return false;
      out += char(uint8_t(bytes_[c]));
      at += lead < 0x80 ? 1 : 2;
    }
    return true;
  }

 private:
  std::array<int16_t, 0x144> bytes_ = [] {
    std::array<int16_t, 0x144> none{};
    none.fill(-1);
    return none;
  }();
};

class Reader {
 public:
  Reader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  Result<BytePairModel> read() {
    if (!json_.is_object()) return error(Code::model, where_, ": expected an object");
    DSA_TRY(read_added());
    DSA_TRY(check_normalizer(member(json_, "normalizer"), "normalizer"));
    DSA_TRY(read_pre_tokenizer(member(json_, "pre_tokenizer"), "pre_tokenizer"));
    if (!has_byte_level_) return unsupported("pre_tokenizer has no ByteLevel");
    const Json& decoder = member(json_, "decoder");
    if (!decoder.is_null() && type_of(decoder) != "ByteLevel")
      return unsupported("decoder is ", in_quotes(type_of(decoder)), ", expected ByteLevel");
    DSA_TRY(read_model(member(json_, "model")));
    return std::move(model_);
  }

 private:
  template <class... Parts>
  Status unsupported(const Parts&... parts) const {
    return error(Code::unsupported, where_, ": ", parts...);
  }
  template <class... Parts>
  Status wrong(const Parts&... parts) const {
    return error(Code::model, where_, ": ", parts...);
  }

  static const Json& member(const Json& object, const char* key) {
    static const Json& none = *new Json();
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : none;
  }
  static std::string type_of(const Json& object) {
    const Json& type = member(object, "type");
    return type.is_string() ? type.get<std::string>() : std::string();
  }
  static bool is_true(const Json& value, bool otherwise) {
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }

  Status read_added() {
    const Json& list = member(json_, "added_tokens");
    if (list.is_null()) return Status::ok();
    if (!list.is_array()) return wrong("added_tokens is not a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const Json& content = member(list[i], "content");
      DSA_ASSIGN(const TokenId id, id_of(member(list[i], "id"), concat("added_tokens[", i, "].id")));
      if (!content.is_string()) return wrong("added_tokens[", i, "].content is not a string");
      const auto& name = content.get_ref<const std::string&>();
      for (const char* flag : {"lstrip", "rstrip", "single_word"})
        if (is_true(member(list[i], flag), false))
          return unsupported("the added token ", in_quotes(name), " has ", flag, ", which we do not read");
      // A marker. A word of ordinary text would have to be cut out of what users write.
      const bool is_marker = name.size() > 2 && ((name.front() == '<' && name.back() == '>') ||
                                                 (name.front() == '[' && name.back() == ']'));
      if (!is_marker && !is_true(member(list[i], "special"), false))
        return unsupported("the added token ", in_quotes(name), " is ordinary text");
      model_.controls.push_back({id, name});
      added_.emplace(name, id);
    }
    return Status::ok();
  }

  Result<TokenId> id_of(const Json& value, const std::string& path) const {
    const bool is_id =
        value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() < INT32_MAX;
    if (!is_id) return wrong(path, " is no id of a token");
    return TokenId(value.get<int64_t>());
  }

  Status check_normalizer(const Json& normalizer, const std::string& path) const {
    if (normalizer.is_null()) return Status::ok();
    const Json& parts = member(normalizer, "normalizers");
    if (type_of(normalizer) != "Sequence" || !parts.is_array())
      return unsupported(path, " is ", in_quotes(type_of(normalizer)), ", so not every text would come back");
    for (size_t i = 0; i < parts.size(); ++i)
      DSA_TRY(check_normalizer(parts[i], concat(path, ".normalizers[", i, "]")));
    return Status::ok();
  }

  Status read_pre_tokenizer(const Json& step, const std::string& path) {
    if (has_byte_level_) return unsupported(path, " stands behind ByteLevel");
    const std::string type = type_of(step);
    if (type == "Sequence") {
      const Json& parts = member(step, "pretokenizers");
      if (!parts.is_array()) return wrong(path, ".pretokenizers is not a list");
      for (size_t i = 0; i < parts.size(); ++i)
        DSA_TRY(read_pre_tokenizer(parts[i], concat(path, ".pretokenizers[", i, "]")));
      return Status::ok();
    }
    if (type == "ByteLevel") {
      has_byte_level_ = true;
      if (is_true(member(step, "add_prefix_space"), true)) return unsupported(path, " has add_prefix_space");
      return is_true(member(step, "use_regex"), true) ? add_pattern(kByteLevelPattern, path) : Status::ok();
    }
    if (type != "Split")
      return unsupported(path, " is ", in_quotes(type), ", expected Sequence, Split or ByteLevel");
    const Json& behavior = member(step, "behavior");
    if (behavior != "Isolated") return unsupported(path, ".behavior is not 'Isolated'");
    if (is_true(member(step, "invert"), false)) return unsupported(path, " has invert");
    const Json& regex = member(member(step, "pattern"), "Regex");
    if (!regex.is_string()) return unsupported(path, ".pattern has no Regex");
    return add_pattern(regex.get_ref<const std::string&>(), path + ".pattern");
  }

  Status add_pattern(std::string_view pattern, const std::string& path) {
    if (model_.patterns.size() == kMaxPatterns)
      return error(Code::limit, where_, ": more than ", kMaxPatterns, " patterns");
    DSA_ASSIGN(auto compiled, SplitPattern::compile(pattern, concat(where_, ": ", path)));
    model_.patterns.push_back(std::move(compiled));
    return Status::ok();
  }

  Status read_model(const Json& model) {
    if (type_of(model) != "BPE") return unsupported("model is ", in_quotes(type_of(model)), ", expected BPE");
    for (const char* key : {"dropout", "unk_token"})
      if (!member(model, key).is_null()) return unsupported("model.", key, " is set");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& affix = member(model, key); !affix.is_null() && affix != "")
        return unsupported("model.", key, " is set");
    if (is_true(member(model, "byte_fallback"), false)) return unsupported("model.byte_fallback is set");
    model_.takes_whole_pieces = is_true(member(model, "ignore_merges"), false);

    const Json& vocab = member(model, "vocab");
    if (!vocab.is_object()) return wrong("model.vocab is not an object");
    ids_.reserve(vocab.size());
    model_.tokens.reserve(vocab.size());
    for (const auto& [text, value] : vocab.items()) {
      DSA_ASSIGN(const TokenId id, id_of(value, concat("model.vocab: ", in_quotes(text))));
      if (const auto added = added_.find(text); added != added_.end()) {
        if (added->second != id)
          return wrong("model.vocab: ", in_quotes(text), " is token ", id, ", as an added token ",
                       added->second);
        continue;
      }
      std::string bytes;
      if (!alphabet_.decode(text, bytes))
        return wrong("model.vocab: ", in_quotes(text), " is not written in bytes, and is no added token");
      ids_.emplace(text, id);
      model_.tokens.push_back({id, std::move(bytes)});
    }
    return read_merges(member(model, "merges"));
  }

  // Each is "left right" or ["left", "right"].
  Status read_merges(const Json& merges) {
    if (!merges.is_array()) return wrong("model.merges is not a list");
    model_.merges.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const Json& merge = merges[rank];
      std::string_view left, right;
      if (merge.is_string()) {
        const std::string_view both = merge.get_ref<const std::string&>();
        const size_t space = both.find(' ');
        left = both.substr(0, space);
        if (space != std::string_view::npos) right = both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get_ref<const std::string&>();
        right = merge[1].get_ref<const std::string&>();
      } else {
        return wrong("model.merges[", rank, "] is not two tokens");
      }
      const auto left_id = ids_.find(left), right_id = ids_.find(right);
      if (left_id == ids_.end() || right_id == ids_.end())
        return wrong("model.merges[", rank, "] names ", in_quotes(left_id == ids_.end() ? left : right),
                     ", which is no token");
      model_.merges.emplace_back(left_id->second, right_id->second);
    }
    return Status::ok();
  }

  const Json& json_;
  const std::string& where_;
  const ByteAlphabet alphabet_;
  BytePairModel model_;
  bool has_byte_level_ = false;
  std::unordered_map<std::string_view, TokenId> added_;  // names within json_
  std::unordered_map<std::string_view, TokenId> ids_;    // the same, as the file spells them
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> read_tokenizer_json(std::string_view text,
                                                             const std::string& where) {
  DSA_ASSIGN(Json json, parse_json(text, where));
  const JsonRelease release(json);
  DSA_ASSIGN(BytePairModel model, Reader(json, where).read());
  return BytePairTokenizer::create(std::move(model), where);
}

}  // namespace dsa
