// tests/support/byte_tokenizer.h: a tokenizer in which every byte is a token, with the control tokens that a test names.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "text/control_names.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace dsa::test {

class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> names) : names_(std::move(names)) {
    for (int byte = 0; byte < 256; ++byte) all_ += char(uint8_t(byte));
    for (size_t i = 0; i < names_.size(); ++i) controls_.add(names_[i], 256 + TokenId(i));
  }
  int vocab_size() const override { return 256 + int(names_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view text) const override {
    DSA_TRY(check_utf8(text));
    pieces.emplace_back(text);
    return ids_of(text);
  }
  Result<std::vector<TokenId>> encode_markup(std::string_view text) const override {
    DSA_TRY(check_utf8(text));
    std::vector<TokenId> ids;
    DSA_TRY(encode_around(controls_, text, ids, [](std::string_view part, std::vector<TokenId>& out) {
      const std::vector<TokenId> bytes = ids_of(part);
      out.insert(out.end(), bytes.begin(), bytes.end());
      return Status::ok();
    }));
    return ids;
  }
  std::string_view bytes(TokenId id) const override {
    return id >= 0 && id < 256 ? std::string_view(all_).substr(size_t(id), 1) : std::string_view();
  }
  bool is_control(TokenId id) const override { return id >= 256 && id < vocab_size(); }
  std::string_view control_name(TokenId id) const override {
    return is_control(id) ? std::string_view(names_[size_t(id - 256)]) : std::string_view();
  }
  std::optional<TokenId> control_id(std::string_view name) const override { return controls_.find(name); }

  mutable std::vector<std::string> pieces;  // every text that was asked for

 private:
  static std::vector<TokenId> ids_of(std::string_view text) {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(uint8_t(c));
    return ids;
  }

  const std::vector<std::string> names_;
  std::string all_;
  ControlNames controls_;
};

}  // namespace dsa::test
