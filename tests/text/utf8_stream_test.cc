#include "text/utf8_stream.h"

#include <doctest/doctest.h>

#include <vector>

#include "support/tokenizer.h"

namespace dsa {
namespace {

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

// Pushes the pieces that `cuts` makes of the text: bit i is a cut after byte i.
std::string in_pieces(std::string_view bytes, uint64_t cuts) {
  Utf8Stream stream;
  std::string out;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (cuts >> i & 1 || i + 1 == bytes.size()) {
      stream.push(bytes.substr(begin, i + 1 - begin), out);
      CHECK(find_invalid_utf8(out) == std::string::npos);  // whole code points at every moment
      begin = i + 1;
    }
  stream.finish(out);
  return out;
}

constexpr std::string_view kR = "\xEF\xBF\xBD";  // U+FFFD

TEST_SUITE("text/utf8_stream") {
  TEST_CASE("TOK-01: emoji, flags, families, Korean and Thai survive every split") {
    for (const std::string_view text :
         {"🦊", "a🦊b", "🇯🇵🇰🇷", "👨‍👩‍👧", "각하", "ก็ทำ", "é", "\xEF\xBF\xBD"}) {
      CHECK(whole(text) == text);
      const uint64_t all = uint64_t(1) << (text.size() - 1);
      for (uint64_t cuts = 0; cuts<all; cuts += all>(1 << 15) ? 37 : 1)
        REQUIRE(in_pieces(text, cuts) == text);
    }
  }

  TEST_CASE("TOK-01: invalid bytes are U+FFFD, one for each maximal subpart, whatever the split") {
    // Expected values from Python: bytes.decode("utf-8", "replace").
    const std::pair<std::string, std::vector<std::string_view>> cases[] = {
        {"\x80", {kR}},
        {"a\xFFz", {"a", kR, "z"}},
        {"\xC3", {kR}},
        {"\xC3(", {kR, "("}},
        {"\xE2\x82", {kR}},
        {"\xE2\x82z", {kR, "z"}},
        {"\xF0\x9F\xA6", {kR}},
        {"\xF0\x9F\xA6\xF0\x9F\xA6\x8A", {kR, "🦊"}},
        {"\xC0\xAF", {kR, kR}},                  // overlong
        {"\xE0\x80\xAF", {kR, kR, kR}},          // overlong
        {"\xED\xA0\x80", {kR, kR, kR}},          // surrogate
        {"\xF4\x90\x80\x80", {kR, kR, kR, kR}},  // beyond U+10FFFF
        {"\xF5z", {kR, "z"}},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", {kR, kR, kR, kR, "A"}},
        {std::string("\0\xC3\0", 3), {std::string_view("\0", 1), kR, std::string_view("\0", 1)}},
    };
    for (const auto& [bytes, parts] : cases) {
      std::string expected;
      for (const std::string_view part : parts) expected += part;
      CHECK(whole(bytes) == expected);
      for (uint64_t cuts = 0; cuts < uint64_t(1) << (bytes.size() - 1); ++cuts)
        REQUIRE(in_pieces(bytes, cuts) == expected);
    }
  }

  TEST_CASE("a code point is delivered with its last byte and a wrong one when that is certain") {
    Utf8Stream stream;
    std::string out;
    stream.push("\xF0\x9F\xA6", out);
    CHECK(out.empty());
    stream.push("\x8A", out);
    CHECK(out == "🦊");
    out.clear();
    stream.push("\xED", out);
    CHECK(out.empty());
    stream.push("\xA0", out);
    CHECK(out == std::string(kR) + std::string(kR));
  }

  TEST_CASE("TOK-01: tokens of a text, one by one, give the text") {
    const auto tokenizer = test::tokenizer();
    const std::string text = "The 🦊 says 안녕, สวัสดี 👨‍👩‍👧 and 🇯🇵.";
    const std::vector<TokenId> ids = tokenizer->encode(text).value();
    Utf8Stream stream;
    std::string out;
    for (const TokenId id : ids) stream.push(tokenizer->bytes(id), out);
    stream.finish(out);
    CHECK(out == text);
  }

  TEST_CASE("the first invalid byte is found") {
    CHECK(find_invalid_utf8("") == std::string_view::npos);
    CHECK(find_invalid_utf8("añ🦊") == std::string_view::npos);
    CHECK(find_invalid_utf8("ab\xFF") == 2);
    CHECK(find_invalid_utf8("ab\xE2\x82") == 2);
    CHECK(find_invalid_utf8("ñ\xC0\x80") == 2);
  }
}

}  // namespace
}  // namespace dsa
