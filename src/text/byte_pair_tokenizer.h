// text/byte_pair_tokenizer.h: byte-level BPE: text is cut by patterns, each piece begins as bytes, and the pair
// of lowest rank merges until none is left. What tiktoken files and tokenizer.json both come down to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/control_names.h"
#include "text/split_pattern.h"
#include "text/tokenizer.h"

namespace dsa {

// A vocabulary as its file says it.
struct BytePairModel {
  struct Token {
    TokenId id;
    std::string text;  // bytes, or the name of a control token
  };
  std::vector<Token> tokens;
  std::vector<Token> controls;
  std::vector<std::pair<TokenId, TokenId>> merges;  // left and right, best first
  bool merges_by_id = false;  // instead: any two tokens that are a third one together, the lowest id first
  bool takes_whole_pieces = false;  // a piece that is a token is that token, whatever the merges say
  std::vector<std::shared_ptr<const SplitPattern>> patterns;  // each cuts what the one before left
  // Before the patterns, in code points; 0: never. The first one counts from the begin of the text, the second
  // one ends runs of space and of everything else.
  size_t max_text = 0, max_run = 0;
};

class BytePairTokenizer : public Tokenizer {
 public:
  // Code::model names contradictions, Code::unsupported a byte that no token stands for: not every text could be
  // written; Code::limit what is too large.
  static Result<std::shared_ptr<const Tokenizer>> create(BytePairModel model, const std::string& where);

  int vocab_size() const override { return int(tokens_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view text) const override;
  Result<std::vector<TokenId>> encode_markup(std::string_view text) const override;
  std::string_view bytes(TokenId id) const override;
  bool is_control(TokenId id) const override;
  std::string_view control_name(TokenId id) const override;
  std::optional<TokenId> control_id(std::string_view name) const override { return controls_.find(name); }

 private:
  enum class Kind : uint8_t { nothing, text, control };
  struct Token {
    std::string text;
    Kind kind = Kind::nothing;
  };
  struct Merge {
    int32_t rank;
    TokenId id;
  };
  struct Scratch;  // of one text

  BytePairTokenizer() = default;
  Status add_tokens(BytePairModel& model, const std::string& where);
  Status add_merges(const BytePairModel& model, const std::string& where);
  Status encode_valid(std::string_view text, std::vector<TokenId>& ids) const;
  Status cut(std::string_view text, size_t pattern, Scratch& scratch, std::vector<TokenId>& ids) const;
  void merge(std::string_view piece, Scratch& scratch, std::vector<TokenId>& ids) const;
  // Of two neighbours; `both` is their text. False: they do not merge.
  bool find_merge(TokenId left, TokenId right, std::string_view both, Merge& merge) const;
  size_t find_cut(std::string_view text, size_t& left) const;

  std::vector<Token> tokens_;  // [id]
  ControlNames controls_;
  std::unordered_map<std::string_view, TokenId> ids_;  // of bytes
  std::unordered_map<uint64_t, Merge> merges_;         // left << 32 | right
  std::vector<std::shared_ptr<const SplitPattern>> patterns_;
  TokenId byte_ids_[256] = {};
  size_t longest_ = 0;  // bytes of a token
  size_t max_text_ = 0, max_run_ = 0;
  bool merges_by_id_ = false, takes_whole_pieces_ = false;
};

}  // namespace dsa
