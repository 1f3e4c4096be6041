#include "text/tiktoken_file.h"

#include <algorithm>
#include <charconv>

#include "io/json.h"
#include "text/byte_pair_tokenizer.h"

namespace dsa {

namespace {

constexpr size_t kMaxFileBytes = size_t(64) << 20;
constexpr size_t kMaxRanks = size_t(1) << 20;

constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What the vendor's code adds to the file of that name.
struct Rules {
  std::string_view name, pattern;
  TokenId slots;  // for control tokens, behind the ranks; 0: only those that have a name
  size_t max_text, max_run;
};
constexpr Rules kRules[] = {{"tiktoken.model", kKimiPattern, 256, 400'000, 25'000},
                            {"o200k_base.tiktoken", kO200kPattern, 0, 0, 0}};

// False if it is not base64 with its padding.
bool decode_base64(std::string_view text, std::string& out) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    const bool is_padding = i >= text.size() - padding;
    if (!is_padding && digit < 0) return false;
    bits = bits << 6 | uint32_t(is_padding ? 0 : digit);
    if (i % 4 != 3) continue;
    for (int byte = 2; byte >= 0; --byte) out += char(uint8_t(bits >> (8 * byte)));
    bits = 0;
  }
  out.resize(out.size() - padding);
  return true;
}

Status read_ranks(std::string_view bytes, const std::string& where, BytePairModel& model) {
  if (bytes.size() > kMaxFileBytes)
    return error(Code::limit, where, ": ", bytes.size(), " bytes, expected at most ", kMaxFileBytes)
        .with_room(bytes.size(), kMaxFileBytes);
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    std::string_view line = bytes.substr(begin, end - begin);
    if (line.ends_with("\r")) line.remove_suffix(1);
    const size_t space = line.find(' ');
    BytePairModel::Token token{-1, {}};
    const char* const last = line.data() + line.size();
    if (!line.empty() &&
        (space == std::string_view::npos || !decode_base64(line.substr(0, space), token.text) ||
         std::from_chars(line.data() + space + 1, last, token.id).ptr != last || token.id < 0))
      return error(Code::corrupt, where, ": line ", model.tokens.size() + 1, " is ", in_quotes(line),
                   ", expected base64 and a rank")
          .with_position(begin);
    if (model.tokens.size() == kMaxRanks)
      return error(Code::limit, where, ": more than ", kMaxRanks, " ranks");
    if (!line.empty()) model.tokens.push_back(std::move(token));
    begin = end + 1;
  }
  if (model.tokens.empty()) return error(Code::corrupt, where, ": no ranks");
  // Ids of control tokens begin at the number of ranks, so there must be no gap.
  for (const BytePairModel::Token& token : model.tokens)
    if (size_t(token.id) >= model.tokens.size())
      return error(Code::model, where, ": rank ", token.id, ", expected less than the number of ranks, ",
                   model.tokens.size());
  return Status::ok();
}

Status read_controls(std::string_view config, const std::string& where, const Rules& rules,
                     BytePairModel& model) {
  JsonLimits limits;
  limits.python_numbers = true;
  DSA_ASSIGN(Json json, parse_json(config, where, limits));
  const JsonRelease release(json);
  const TokenId first = TokenId(model.tokens.size());
  std::vector<std::string> slots(size_t(rules.slots));
  if (json.is_object() && json.contains("added_tokens_decoder")) {
    const Json& added = json["added_tokens_decoder"];
    if (!added.is_object()) return error(Code::model, where, ": 'added_tokens_decoder' is not an object");
    for (const auto& [key, value] : added.items()) {
      TokenId id = -1;
      const char* const last = key.data() + key.size();
      if (std::from_chars(key.data(), last, id).ptr != last || id < first ||
          (rules.slots > 0 && id >= first + rules.slots))
        return error(Code::model, where, ": added_tokens_decoder names token ", in_quotes(key), ", expected ",
                     first, " to ", first + std::max(rules.slots, 1) - 1);
      const auto content = value.is_object() ? value.find("content") : value.end();
      if (!value.is_object() || content == value.end() || !content->is_string())
        return error(Code::model, where, ": added_tokens_decoder.", id, ".content is not a string");
      if (rules.slots > 0)
        slots[size_t(id - first)] = content->get<std::string>();
      else
        model.controls.push_back({id, content->get<std::string>()});
    }
  }
  for (TokenId slot = 0; slot < rules.slots; ++slot) {
    std::string& name = slots[size_t(slot)];
    if (name.empty()) name = concat("<|reserved_token_", first + slot, "|>");
    model.controls.push_back({first + slot, std::move(name)});
  }
  return Status::ok();
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> read_tiktoken(std::string_view bytes, const std::string& where,
                                                       std::string_view config,
                                                       const std::string& config_where) {
  const std::string_view name = std::string_view(where).substr(where.find_last_of('/') + 1);
  const auto rules = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rules& each) { return each.name == name; });
  if (rules == std::end(kRules))
    return error(Code::unsupported, where,
                 ": we do not know how text is cut for it, expected tiktoken.model or o200k_base.tiktoken");
  BytePairModel model;
  DSA_TRY(read_ranks(bytes, where, model));
  DSA_TRY(read_controls(config, config_where, *rules, model));
  model.merges_by_id = model.takes_whole_pieces = true;
  model.max_text = rules->max_text;
  model.max_run = rules->max_run;
  DSA_ASSIGN(auto pattern, SplitPattern::compile(rules->pattern, where));
  model.patterns.push_back(std::move(pattern));
  return BytePairTokenizer::create(std::move(model), where);
}

}  // namespace dsa
