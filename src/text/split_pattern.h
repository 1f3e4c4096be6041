// text/split_pattern.h: the regular expressions that cut text into pieces before pairs are merged.
//
// Tokenizer files write them for Oniguruma or Rust's regex; PCRE2 runs them. A construct that would mean
// something else there, or that we have no words for, is refused:
//
//   \s          \p{White_Space}; PCRE2's own \s also takes U+180E
//   \p{Han}     \p{sc:Han}; PCRE2 would take the script extensions
//   [A&&[^B]]   one negated class, where A lists general categories only: what is in neither of the categories
//               that A leaves out, nor in B
//   \uFFFF      \x{FFFF}
//
// What a letter is follows the Unicode version of PCRE2 (10.42: Unicode 14).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

// PCRE2's own, of its library for bytes.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace dsa {

// The pattern as PCRE2 understands it; Code::unsupported names the construct.
Result<std::string> translate_pattern(std::string_view pattern, const std::string& where);

class SplitPattern {
 public:
  // `where` names the pattern in messages.
  static Result<std::shared_ptr<const SplitPattern>> compile(std::string_view pattern,
                                                             const std::string& where);
  ~SplitPattern();
  SplitPattern(const SplitPattern&) = delete;
  SplitPattern& operator=(const SplitPattern&) = delete;

  // Calls emit(piece) for each match in valid UTF-8 and for what lies between matches, so that the pieces together
  // are the text. Time is bounded by a constant times the size of the text, whatever the pattern:
  // Code::limit beyond.
  template <class Emit>
  Status split(std::string_view text, const Emit& emit) const {
    Search search(*this, text);
    for (;;) {
      DSA_ASSIGN(const std::string_view piece, search.next());
      if (piece.empty()) return Status::ok();
      DSA_TRY(emit(piece));
    }
  }

 private:
  SplitPattern() = default;

  // One pass over a text.
  class Search {
   public:
    Search(const SplitPattern& pattern, std::string_view text);
    ~Search();
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    Result<std::string_view> next();  // empty at the end

   private:
    Status find();

    const SplitPattern& pattern_;
    std::string_view text_;
    size_t at_ = 0;                           // everything before is emitted
    size_t match_begin_ = 0, match_end_ = 0;  // the match that comes next
    bool has_match_ = false, is_done_ = false;
    uint64_t budget_;  // of backtracking steps in expensive matches
    pcre2_real_match_data_8* data_;
    pcre2_real_match_context_8* context_;
  };

  std::string where_;
  pcre2_real_code_8* code_ = nullptr;
};

}  // namespace dsa
