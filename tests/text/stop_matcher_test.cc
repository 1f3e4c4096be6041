#include "text/stop_matcher.h"

#include <doctest/doctest.h>

#include <cstdint>

#include "support/timing.h"

namespace dsa {
namespace {

struct Outcome {
  int matched;
  std::string text;
  bool operator==(const Outcome&) const = default;
};

doctest::String toString(const Outcome& outcome) {
  return (std::to_string(outcome.matched) + " '" + outcome.text + "'").c_str();
}

// Bit i of `cuts` is a cut after byte i.
Outcome run(const std::vector<std::string>& stops, std::string_view text, uint64_t cuts) {
  StopMatcher matcher(stops);
  Outcome outcome{-1, ""};
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (cuts >> i & 1 || i + 1 == text.size()) {
      outcome.matched = matcher.push(text.substr(begin, i + 1 - begin), outcome.text);
      begin = i + 1;
    }
  matcher.finish(outcome.text);
  return outcome;
}

// The rule, by trying: the earliest end, then the earliest begin, then the lowest index.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end)
    for (size_t begin = 0; begin < end; ++begin)
      for (size_t i = 0; i < stops.size(); ++i)
        if (text.substr(begin, end - begin) == stops[i]) return {int(i), text.substr(0, begin)};
  return {-1, text};
}

void check_all_splits(const std::vector<std::string>& stops, const std::string& text) {
  const Outcome outcome = expected(stops, text);
  for (uint64_t cuts = 0; cuts < uint64_t(1) << (text.empty() ? 0 : text.size() - 1); ++cuts)
    REQUIRE(run(stops, text, cuts) == outcome);
}

TEST_SUITE("text/stop_matcher") {
  TEST_CASE("SAMP-04: a stop text over four pieces, and not a byte of it") {
    StopMatcher matcher({"DEFGHIJ"});
    std::string out;
    for (const char* piece : {"ABC", "DEF", "G", "HI"}) CHECK(matcher.push(piece, out) == -1);
    CHECK(out == "ABC");
    CHECK(matcher.push("JKL", out) == 0);
    CHECK(matcher.push("more", out) == 0);
    matcher.finish(out);
    CHECK(out == "ABC");
  }

  TEST_CASE("SAMP-04: near misses are delivered, at the latest at the end") {
    StopMatcher matcher({"DEFGHIJ"});
    std::string out;
    matcher.push("DEFGHI", out);
    CHECK(out.empty());
    matcher.push("X", out);
    CHECK(out == "DEFGHIX");
    matcher.push("DEF", out);
    CHECK(out == "DEFGHIX");
    matcher.finish(out);
    CHECK(out == "DEFGHIXDEF");
  }

  TEST_CASE("SAMP-04: no more is held back than can still become a stop text") {
    StopMatcher matcher({"\n\nUser:", "END"});
    std::string out;
    matcher.push("Hello\n\n", out);
    CHECK(out == "Hello");
    matcher.push("\n\nUse", out);
    CHECK(out == "Hello\n\n");
    matcher.push(" it. EN", out);
    CHECK(out == "Hello\n\n\n\nUse it. ");
  }

  TEST_CASE("SAMP-04: a stop text that is a prefix of another, and one inside another") {
    check_all_splits({"ab", "abc"}, "xabcx");  // the shorter one is complete first
    check_all_splits({"abc", "ab"}, "xabcx");
    check_all_splits({"bc", "abc"}, "xabcx");  // both end there, the longer one begins first
    check_all_splits({"b", "abx"}, "xaby");    // 'a' is no part of the match and is delivered
    check_all_splits({"ab", "ab"}, "ab");
    CHECK(run({"ab", "abc"}, "xabcx", 0) == Outcome{0, "x"});
    CHECK(run({"bc", "abc"}, "xabcx", 0) == Outcome{1, "x"});
    CHECK(run({"b", "abx"}, "xaby", 0) == Outcome{0, "xa"});
  }

  TEST_CASE("SAMP-04: stop texts of many bytes a character, over every split") {
    check_all_splits({"終わり"}, "これで終わり。");
    check_all_splits({"🦊🦊", "🐻"}, "a🦊🐺🦊");
    check_all_splits({"é"}, "èéê");
    check_all_splits({"끝"}, "끋끝");
  }

  TEST_CASE("SAMP-04: every text of up to nine letters, every split, seven sets of stop texts") {
    const std::vector<std::vector<std::string>> sets = {
        {"ab"}, {"aa"}, {"aab", "ab"}, {"aba", "bab"}, {"abab", "b"}, {"aabaa"}, {"bb", "abba", "aaaa"}};
    for (const auto& stops : sets)
      for (size_t size = 0; size <= 9; ++size)
        for (uint64_t letters = 0; letters < uint64_t(1) << size; ++letters) {
          std::string text;
          for (size_t i = 0; i < size; ++i) text += letters >> i & 1 ? 'b' : 'a';
          check_all_splits(stops, text);
        }
  }

  TEST_CASE("without stop texts everything passes at once") {
    StopMatcher matcher({});
    std::string out;
    CHECK(matcher.push("abc", out) == -1);
    CHECK(out == "abc");
  }

  TEST_CASE("repetitive texts cost the same as others") {
    StopMatcher matcher({std::string(100'000, 'a') + "b"});
    std::string out;
    const double begin = test::cpu_seconds();
    for (int i = 0; i < 1000; ++i) matcher.push(std::string(999, 'a') + "c", out);
    CHECK(matcher.push(std::string(200'000, 'a') + "b", out) == 0);
    CHECK(out.size() == 1'100'000);
    CHECK(test::cpu_seconds() - begin < 5 * test::kSlowdown);
  }
}

}  // namespace
}  // namespace dsa
