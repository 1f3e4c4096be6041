#include "text/byte_pair_tokenizer.h"

#include <algorithm>

#include "io/json.h"
#include "text/utf8_stream.h"

namespace dsa {

namespace {

constexpr TokenId kMaxTokens = 1 << 20;
constexpr size_t kMaxTokenBytes = 1024;
constexpr size_t kMaxPieceBytes = size_t(4)
                                  << 20;  // a longer piece is cut there, as each byte takes 40 bytes

uint64_t pair_of(TokenId left, TokenId right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

// A code point of valid text.
struct CodePoint {
  uint32_t value;
  size_t size;
};

CodePoint first_code_point(std::string_view text) {
  const uint8_t lead = uint8_t(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) value = value << 6 | (uint8_t(text[i]) & 0x3F);
  return {value, size};
}

// What Python calls a space, as the cuts of a tiktoken package come from Python.
bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace

// A piece in the making: tokens as a list over its bytes, and the merges that may come next.
struct BytePairTokenizer::Scratch {
  struct Node {
    TokenId id;  // -1: merged away
    int32_t previous, end;
  };
  struct Candidate {
    int32_t rank, begin, middle, end;
    TokenId id;
    // The queue gives the largest: the lowest rank, and of equal ones the leftmost.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : begin > other.begin;
    }
  };
  std::vector<Node> nodes;  // [first byte of the token]
  std::vector<Candidate> heap;
};

Result<std::shared_ptr<const Tokenizer>> BytePairTokenizer::create(BytePairModel model,
                                                                   const std::string& where) {
  std::shared_ptr<BytePairTokenizer> made(new BytePairTokenizer());
  DSA_TRY(made->add_tokens(model, where));
  DSA_TRY(made->add_merges(model, where));
  made->patterns_ = std::move(model.patterns);
  made->takes_whole_pieces_ = model.takes_whole_pieces;
  made->max_text_ = model.max_text;
  made->max_run_ = model.max_run;
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

Status BytePairTokenizer::add_tokens(BytePairModel& model, const std::string& where) {
  const auto name_of = [&](const BytePairModel::Token& token) {
    return concat(where, ": token ", token.id, " ", in_quotes(token.text));
  };
  TokenId last = -1;
  for (const auto* list : {&model.tokens, &model.controls})
    for (const BytePairModel::Token& token : *list) {
      if (token.id < 0 || token.id >= kMaxTokens)
        return error(Code::limit, name_of(token), " has an id beyond ", kMaxTokens - 1);
      if (token.text.empty()) return error(Code::model, name_of(token), " is empty");
      if (token.text.size() > kMaxTokenBytes)
        return error(Code::limit, name_of(token), " has ", token.text.size(), " bytes, expected at most ",
                     kMaxTokenBytes);
      last = std::max(last, token.id);
    }
  tokens_.resize(size_t(last + 1));  // the maps refer to texts in here

  ids_.reserve(model.tokens.size());
  for (const bool is_control : {false, true})
    for (BytePairModel::Token& token : is_control ? model.controls : model.tokens) {
      Token& own = tokens_[size_t(token.id)];
      if (own.kind != Kind::nothing)
        return error(Code::model, name_of(token), " is also ", in_quotes(own.text));
      own.text = std::move(token.text);
      own.kind = is_control ? Kind::control : Kind::text;
      const bool is_new =
          is_control ? controls_.add(own.text, token.id) : ids_.emplace(own.text, token.id).second;
      if (!is_new) return error(Code::model, where, ": ", in_quotes(own.text), " is two tokens");
      if (!is_control) longest_ = std::max(longest_, own.text.size());
    }

  for (int byte = 0; byte < 256; ++byte) {
    const char text = char(uint8_t(byte));
    const auto found = ids_.find(std::string_view(&text, 1));
    if (found == ids_.end())
      return error(Code::unsupported, where, ": no token for byte ", byte,
                   ", so not every text can be written");
    byte_ids_[byte] = found->second;
  }
  return Status::ok();
}

Status BytePairTokenizer::add_merges(const BytePairModel& model, const std::string& where) {
  merges_by_id_ = model.merges_by_id;
  merges_.reserve(model.merges.size());
  std::string both;
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto [left, right] = model.merges[rank];
    for (const TokenId id : {left, right})
      if (id < 0 || id >= vocab_size() || tokens_[size_t(id)].kind != Kind::text)
        return error(Code::model, where, ": merge ", rank, " names token ", id, ", which is no text");
    both = tokens_[size_t(left)].text;
    both += tokens_[size_t(right)].text;
    const auto merged = ids_.find(both);
    if (merged == ids_.end())
      return error(Code::model, where, ": merge ", rank, " makes ", in_quotes(both), ", which is no token");
    merges_[pair_of(left, right)] = {int32_t(rank),
                                     merged->second};  // the last one counts, as in the library
  }
  return Status::ok();
}

Result<std::vector<TokenId>> BytePairTokenizer::encode(std::string_view text) const {
  DSA_TRY(check_utf8(text));
  std::vector<TokenId> ids;
  DSA_TRY(encode_valid(text, ids));
  return ids;
}

Result<std::vector<TokenId>> BytePairTokenizer::encode_markup(std::string_view text) const {
  DSA_TRY(check_utf8(text));
  std::vector<TokenId> ids;
  DSA_TRY(encode_around(controls_, text, ids, [this](std::string_view part, std::vector<TokenId>& out) {
    return encode_valid(part, out);
  }));
  return ids;
}

Status BytePairTokenizer::encode_valid(std::string_view text, std::vector<TokenId>& ids) const {
  Scratch scratch;
  size_t left = max_text_;  // code points, until the text is cut anyhow
  while (!text.empty()) {
    const std::string_view part = text.substr(0, find_cut(text, left));
    DSA_TRY(cut(part, 0, scratch, ids));
    text.remove_prefix(part.size());
  }
  return Status::ok();
}

// Where the text is cut before any pattern sees it.
size_t BytePairTokenizer::find_cut(std::string_view text, size_t& left) const {
  if (max_text_ == 0) return text.size();
  size_t run = 0;
  bool was_space = false;
  for (size_t at = 0; at < text.size(); --left) {
    const CodePoint point = first_code_point(text.substr(at));
    const bool now_space = is_space(point.value);
    run = now_space != was_space ? 1 : run + 1;
    was_space = now_space;
    if (left == 0) return left = max_text_, at;
    if (run > max_run_) return at;
    at += point.size;
  }
  return text.size();
}

Status BytePairTokenizer::cut(std::string_view text, size_t pattern, Scratch& scratch,
                              std::vector<TokenId>& ids) const {
  if (pattern < patterns_.size())
    return patterns_[pattern]->split(
        text, [&](std::string_view piece) { return cut(piece, pattern + 1, scratch, ids); });
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kMaxPieceBytes)))
    merge(text.substr(0, kMaxPieceBytes), scratch, ids);
  return Status::ok();
}

bool BytePairTokenizer::find_merge(TokenId left, TokenId right, std::string_view both, Merge& merge) const {
  if (merges_by_id_) {
    if (both.size() > longest_) return false;
    const auto found = ids_.find(both);
    if (found == ids_.end()) return false;
    merge = {found->second, found->second};
    return true;
  }
  const auto found = merges_.find(pair_of(left, right));
  if (found == merges_.end()) return false;
  merge = found->second;
  return true;
}

void BytePairTokenizer::merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const {
  if (takes_whole_pieces_ && piece.size() <= longest_)
    if (const auto whole = ids_.find(piece); whole != ids_.end()) return ids.push_back(whole->second);

  const int32_t size = int32_t(piece.size());
  std::vector<Scratch::Node>& nodes = scratch.nodes;
  std::vector<Scratch::Candidate>& heap = scratch.heap;
  nodes.resize(piece.size());
  for (int32_t at = 0; at < size; ++at)
    nodes[size_t(at)] = {byte_ids_[uint8_t(piece[size_t(at)])], at - 1, at + 1};

  heap.clear();
  const auto consider = [&](int32_t begin) {
    const int32_t middle = nodes[size_t(begin)].end;
    if (middle == size) return false;
    const int32_t end = nodes[size_t(middle)].end;
    Merge merge;
    if (!find_merge(nodes[size_t(begin)].id, nodes[size_t(middle)].id,
                    piece.substr(size_t(begin), size_t(end - begin)), merge))
      return false;
    heap.push_back({merge.rank, begin, middle, end, merge.id});
    return true;
  };
  for (int32_t begin = 0; begin < size; ++begin) consider(begin);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Scratch::Node& left = nodes[size_t(best.begin)];
    // Stale: one of the two has merged with another one meanwhile.
    if (left.id < 0 || left.end != best.middle || nodes[size_t(best.middle)].end != best.end) continue;
    nodes[size_t(best.middle)].id = -1;
    left.id = best.id;
    left.end = best.end;
    if (best.end < size) nodes[size_t(best.end)].previous = best.begin;
    if (consider(best.begin)) std::push_heap(heap.begin(), heap.end());
    if (left.previous >= 0 && consider(left.previous)) std::push_heap(heap.begin(), heap.end());
  }
  for (int32_t at = 0; at < size; at = nodes[size_t(at)].end) ids.push_back(nodes[size_t(at)].id);
}

std::string_view BytePairTokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size() || tokens_[size_t(id)].kind != Kind::text) return {};
  return tokens_[size_t(id)].text;
}

bool BytePairTokenizer::is_control(TokenId id) const {
  return id >= 0 && id < vocab_size() && tokens_[size_t(id)].kind == Kind::control;
}

std::string_view BytePairTokenizer::control_name(TokenId id) const {
  return is_control(id) ? std::string_view(tokens_[size_t(id)].text) : std::string_view();
}

}  // namespace dsa
