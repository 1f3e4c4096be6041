#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <new>

#include "io/json.h"

namespace dsa {

namespace {

constexpr size_t kMaxPatternBytes = size_t(64) << 10;
constexpr uint32_t kCheapSteps = 1 << 12;  // a match that takes no more of them costs no budget
constexpr uint64_t kStepsPerByte = 256, kLeastSteps = 1 << 20;
constexpr uint32_t kHeapKibibytes = 256 << 10;
constexpr std::string_view kCategories[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                            "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                            "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

bool is_category(std::string_view name) {
  return std::any_of(std::begin(kCategories), std::end(kCategories), [&](std::string_view category) {
    return category == name || (name.size() == 1 && category[0] == name[0]);
  });
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '[')
        DSA_TRY(read_class(out_));
      else if (c == '\\')
        DSA_TRY(read_escape(out_, nullptr));
      else if (c == '(')
        DSA_TRY(read_group());
      else if (c == '^' || c == '$')
        return refuse("an anchor");
      else
        out_ += pattern_[at_++];
    }
    return std::move(out_);
  }

 private:
  Status refuse(const char* what) const {
    return error(Code::unsupported, where_, ": the pattern has ", what, " at byte ", at_,
                 ", which we do not read: ", in_quotes(pattern_.substr(at_, 40)))
        .with_position(at_);
  }

  Status read_group() {
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"})
      if (pattern_.substr(at_).starts_with(known)) {
        out_ += known;
        at_ += known.size();
        return Status::ok();
      }
    if (pattern_.substr(at_ + 1).starts_with("?") || pattern_.substr(at_ + 1).starts_with("*"))
      return refuse("a group");
    out_ += pattern_[at_++];
    return Status::ok();
  }

  // One escape; `categories` receives the name if it is a general category, and is cleared if it is not.
  Status read_escape(std::string& out, std::vector<std::string>* categories) {
    if (at_ + 1 >= pattern_.size()) return refuse("a backslash with nothing behind it");
    const char c = pattern_[at_ + 1];
    if (c == 'p' || c == 'P') {
      const size_t begin = at_ + 2;
      size_t end = begin + 1;
      std::string_view name = pattern_.substr(std::min(begin, pattern_.size()), 1);
      if (name == "{") {
        end = pattern_.find('}', begin);
        if (end == std::string_view::npos) return refuse("a property without its end");
        name = pattern_.substr(begin + 1, end - begin - 1);
        ++end;
      }
      const bool is_word = !name.empty() && std::all_of(name.begin(), name.end(), [](char letter) {
        return (letter | 0x20) >= 'a' && (letter | 0x20) <= 'z';
      });
      if (!is_word) return refuse("a property");
      out += '\\';
      out += c;
      out += is_category(name) ? concat("{", name, "}") : concat("{sc:", name, "}");
      if (categories != nullptr && c == 'p' && is_category(name)) categories->emplace_back(name);
      at_ = end;
      return Status::ok();
    }
    if (c == 's' || c == 'S') {
      out += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else if (c == 'u') {
      const std::string_view digits = pattern_.substr(std::min(at_ + 2, pattern_.size()), 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
        return refuse("an escape");
      out += concat("\\x{", digits, "}");
      at_ += 4;
    } else if (c == 'd' || c == 'r' || c == 'n' || c == 't' || c == 'f') {
      out += '\\';
      out += c;
    } else if (uint8_t(c) < 0x80 && !std::isalnum(uint8_t(c))) {
      out += '\\';
      out += c;
    } else {
      return refuse("an escape");
    }
    at_ += 2;
    return Status::ok();
  }

  // From '[' to its ']'; an intersection becomes one negated class.
  Status read_class(std::string& out) {
    ++at_;
    const bool is_negated = pattern_.substr(at_).starts_with("^");
    at_ += is_negated;
    std::string items;
    std::vector<std::string> categories;
    size_t num_items = 0;
    for (;; ++num_items) {
      const std::string_view rest = pattern_.substr(at_);
      if (rest.empty()) return refuse("a class without its end");
      if (rest[0] == ']' && num_items > 0) break;
      if (rest.starts_with("&&")) {
        if (is_negated || num_items == 0 || categories.size() != num_items)
          return refuse("an intersection of other things than general categories");
        return read_intersection(categories, out);
      }
      if (rest[0] == '[') return refuse("a class within a class");
      if (rest.starts_with("--") || rest.starts_with("~~")) return refuse("an operation on classes");
      if (rest[0] == '\\') {
        DSA_TRY(read_escape(items, &categories));
      } else {
        items += rest[0];
        ++at_;
      }
    }
    ++at_;
    out += concat(is_negated ? "[^" : "[", items, "]");
    return Status::ok();
  }

  Status read_intersection(const std::vector<std::string>& categories, std::string& out) {
    at_ += 2;
    if (!pattern_.substr(at_).starts_with("[^")) return refuse("an intersection without a negated class");
    std::string other;
    DSA_TRY(read_class(other));
    if (!pattern_.substr(at_).starts_with("]")) return refuse("an intersection of more than two classes");
    ++at_;
    out += "[^";
    for (const std::string_view category : kCategories) {
      const bool is_listed = std::any_of(categories.begin(), categories.end(), [&](const std::string& name) {
        return category.substr(0, name.size()) == name;
      });
      if (!is_listed) out += concat("\\p{", category, "}");
    }
    out += other.substr(2);
    return Status::ok();
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

Result<std::shared_ptr<const SplitPattern>> SplitPattern::compile(std::string_view pattern,
                                                                  const std::string& where) {
  if (pattern.size() > kMaxPatternBytes)
    return error(Code::limit, where, ": a pattern of ", pattern.size(), " bytes, expected at most ",
                 kMaxPatternBytes)
        .with_room(pattern.size(), kMaxPatternBytes);
  DSA_ASSIGN(const std::string translated, translate_pattern(pattern, where));
  std::shared_ptr<SplitPattern> made(new SplitPattern());
  made->where_ = where;
  int code = 0;
  PCRE2_SIZE position = 0;
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  made->code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &position, context);
  pcre2_compile_context_free(context);
  if (made->code_ == nullptr)
    return error(Code::model, where, ": the pattern ", in_quotes(translated), " at byte ", position, ": ",
                 message_of(code))
        .with_position(position);
  // Where the processor has none the interpreter does the same, slower.
  pcre2_jit_compile(made->code_, PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const SplitPattern>(std::move(made));
}

SplitPattern::~SplitPattern() { pcre2_code_free(code_); }

SplitPattern::Search::Search(const SplitPattern& pattern, std::string_view text)
    : pattern_(pattern),
      text_(text),
      budget_(std::max(kLeastSteps, kStepsPerByte * text.size())),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    throw std::bad_alloc();
  }
  pcre2_set_heap_limit(context_, kHeapKibibytes);
}

SplitPattern::Search::~Search() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
}

Result<std::string_view> SplitPattern::Search::next() {
  if (!has_match_ && !is_done_) DSA_TRY(find());
  const size_t begin = at_;
  if (is_done_)
    at_ = text_.size();
  else if (match_begin_ > at_)
    at_ = match_begin_;  // what no alternative takes
  else {
    at_ = match_end_;
    has_match_ = false;
  }
  return text_.substr(begin, at_ - begin);
}

// Most matches take a few steps. One that takes more is begun again with sixteen times as many, as long as
// the budget lasts, so that all of them together stay linear.
Status SplitPattern::Search::find() {
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  if (at_ == text_.size()) return is_done_ = true, Status::ok();

  uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  for (uint64_t steps = kCheapSteps;;) {
    pcre2_set_match_limit(context_, uint32_t(steps));
    const int found = pcre2_match(pattern_.code_, subject, text_.size(), at_, options, data_, context_);
    if (found >= 0) {
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_);
      if (range[0] < at_ || range[1] <= range[0] || range[1] > text_.size())
        return error(Code::internal, pattern_.where_, ": a match from ", range[0], " to ", range[1]);
      match_begin_ = range[0];
      match_end_ = range[1];
      has_match_ = true;
      return Status::ok();
    }
    switch (found) {
      case PCRE2_ERROR_NOMATCH: is_done_ = true; return Status::ok();
      case PCRE2_ERROR_JIT_STACKLIMIT: options |= PCRE2_NO_JIT; continue;  // its frames are on the heap
      case PCRE2_ERROR_NOMEMORY: throw std::bad_alloc();
      case PCRE2_ERROR_MATCHLIMIT:
        steps = std::min<uint64_t>(steps * 16, UINT32_MAX);
        if (steps > budget_)
          return error(Code::limit, pattern_.where_, ": the pattern takes too many steps at byte ", at_,
                       " of the text")
              .with_position(at_);
        budget_ -= steps;
        continue;
      default:
        return error(Code::limit, pattern_.where_, ": ", message_of(found), " at byte ", at_, " of the text")
            .with_position(at_);
    }
  }
}

}  // namespace dsa
