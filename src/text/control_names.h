// text/control_names.h: the names of control tokens, and where they stand in a text.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace dsa {

class ControlNames {
 public:
  // `name` lives elsewhere and is not empty; false if it is there already.
  bool add(std::string_view name, TokenId id);
  std::optional<TokenId> find(std::string_view name) const;

  struct Match {
    size_t begin, size;
    TokenId id;
  };
  // The first one at or behind `from`; of several that begin there the longest.
  std::optional<Match> find_in(std::string_view text, size_t from) const;

 private:
  std::unordered_map<std::string_view, TokenId> ids_;
  std::vector<size_t> lengths_;  // distinct, longest first
  bool begins_[256] = {};        // bytes that names begin with
};

// Ordinary text between the names through encode(text, ids), names as their tokens.
template <class Encode>
Status encode_around(const ControlNames& names, std::string_view text, std::vector<TokenId>& ids,
                     const Encode& encode) {
  size_t begin = 0;
  while (const auto match = names.find_in(text, begin)) {
    DSA_TRY(encode(text.substr(begin, match->begin - begin), ids));
    ids.push_back(match->id);
    begin = match->begin + match->size;
  }
  return encode(text.substr(begin), ids);
}

}  // namespace dsa
