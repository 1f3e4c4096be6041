// text/sentencepiece_tokenizer.h: tokenizer.model files of SentencePiece, BPE with byte fallback.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/control_names.h"
#include "text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace dsa {

struct StoredPiece;  // an entry of the model file

// Reads the model file itself, checks it, and hands the library only what it has checked; text and ids follow each
// other exactly, so a model that normalises text, adds to it or cannot write every byte is refused (unsupported).
class SentencePieceTokenizer : public Tokenizer {
 public:
  // `where` names the model in messages. Damage is Code::corrupt, a contradiction Code::model.
  static Result<std::shared_ptr<const Tokenizer>> from_bytes(std::string_view bytes,
                                                             const std::string& where);
  ~SentencePieceTokenizer() override;

  int vocab_size() const override { return int(pieces_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view text) const override;
  Result<std::vector<TokenId>> encode_markup(std::string_view text) const override;
  std::string_view bytes(TokenId id) const override;
  bool is_control(TokenId id) const override;
  std::string_view control_name(TokenId id) const override;
  std::optional<TokenId> control_id(std::string_view name) const override { return controls_.find(name); }

 private:
  struct Piece {
    std::string text;  // what the token stands for, or the name of a control token
    bool is_control;
  };

  SentencePieceTokenizer();
  Status add_pieces(const std::string& where, const std::vector<StoredPiece>& stored);
  Status encode_valid(std::string_view text, std::vector<TokenId>& ids) const;
  size_t find_cut(std::string_view text) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::vector<Piece> pieces_;
  ControlNames controls_;          // names inside pieces_
  std::vector<TokenId> byte_ids_;  // of the 256 bytes
  std::vector<uint64_t> pairs_;    // sorted; neighbouring code points inside of pieces
};

}  // namespace dsa
