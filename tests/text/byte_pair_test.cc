// tiktoken files and tokenizer.json, against ids of the libraries that they come from: see make_vectors.py.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/json.h"
#include "support/byte_level.h"
#include "support/small_stack.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include "support/tokenizer.h"
#include "text/byte_pair_tokenizer.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_json.h"
#include "text/utf8_stream.h"

namespace dsa {
namespace {

const std::string kVectors = DSA_SOURCE_DIR "/tests/text/vectors";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class Varints {
 public:
  explicit Varints(std::string bytes) : bytes_(std::move(bytes)) {}
  bool is_done() const { return at_ == bytes_.size(); }
  size_t next() {
    size_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(at_ < bytes_.size());
      const uint8_t byte = uint8_t(bytes_[at_++]);
      value |= size_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string take(size_t size) {
    REQUIRE(size <= bytes_.size() - at_);
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::shared_ptr<const Tokenizer> load(const std::string& folder) {
  auto loaded = Tokenizer::load(folder);
  REQUIRE_MESSAGE(loaded.is_ok(), loaded.status().message());
  return loaded.value();
}

// The ids of every string, and that they come back as the string. Returns the number of strings.
size_t check_vectors(const std::string& folder, const std::string& name) {
  const auto tokenizer = load(folder + "/" + name);
  size_t num_strings = 0;
  for (const bool is_markup : {false, true}) {
    Varints strings(read(folder + "/strings"));
    Varints vectors(read(folder + "/" + name + (is_markup ? ".markup" : ".ids")));
    size_t num_wrong = 0;
    for (num_strings = 0; !strings.is_done(); ++num_strings) {
      const std::string text = strings.take(strings.next());
      const auto found = is_markup ? tokenizer->encode_markup(text) : tokenizer->encode(text);
      const size_t count = vectors.next();
      if (count == 0) {
        CHECK(found.status().code() == Code::utf8);
        CHECK(found.status().info().position == vectors.next());
        continue;
      }
      std::vector<TokenId> expected;
      for (size_t i = 1; i < count; ++i) expected.push_back(TokenId(vectors.next()));
      REQUIRE_MESSAGE(found.is_ok(), found.status().message());
      if (found.value() != expected && ++num_wrong < 5)
        MESSAGE(name, ", string ", num_strings, ": ", test::spell(*tokenizer, found.value()).substr(0, 500),
                " EXPECTED ", test::spell(*tokenizer, expected).substr(0, 500));
      if (!is_markup) CHECK(test::decode(*tokenizer, found.value()) == text);
    }
    CHECK(vectors.is_done());
    INFO(name, is_markup ? ", markup" : "");
    CHECK(num_wrong == 0);
  }
  return num_strings;
}

// A tokenizer.json with the 256 bytes as tokens, and more.
struct JsonFile {
  std::string added, model, vocab, merges, pre = R"({"type": "ByteLevel", "add_prefix_space": false})",
                                           normalizer = "null", decoder = R"({"type": "ByteLevel"})";

  std::string text(bool has_bytes = true) const {
    const std::string bytes = has_bytes ? test::byte_level_vocab() : "";
    return concat(R"({"added_tokens": [)", added, R"(], "normalizer": )", normalizer,
                  R"(, "pre_tokenizer": )", pre, R"(, "decoder": )", decoder,
                  R"(, "model": {"type": "BPE", )", model, R"("vocab": {)", bytes, vocab, R"(}, "merges": [)",
                  merges, "]}}");
  }
  Status status() const { return read_tokenizer_json(text(), "tokenizer.json").status(); }
};

bool fails(const Status& status, Code code, const std::string& part) {
  INFO(status.message());
  CHECK(status.code() == code);
  CHECK(status.message().find(part) != std::string::npos);
  return status.code() == code;
}

std::string split_of(const std::string& regex) {
  return R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "pattern": {"Regex": )" +
         Json(regex).dump() + R"(}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  std::vector<std::string> pieces;
  const auto compiled = SplitPattern::compile(pattern, "test");
  REQUIRE_MESSAGE(compiled.is_ok(), compiled.status().message());
  const Status status = compiled.value()->split(text, [&](std::string_view piece) {
    pieces.emplace_back(piece);
    return Status::ok();
  });
  REQUIRE_MESSAGE(status.is_ok(), status.message());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST_SUITE("text/byte_pair") {
  TEST_CASE("TOK-04: ids are those of the libraries, for three kinds of files") {
    for (const char* name : {"deepseek", "o200k", "kimi"}) CHECK(check_vectors(kVectors, name) == 600);
  }

  TEST_CASE(
      "TOK-04: real vocabularies, where DSA_TOKENIZER_VECTORS names a folder of make_vectors.py --real") {
    const char* const folder = std::getenv("DSA_TOKENIZER_VECTORS");
    if (folder == nullptr) return;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.is_directory()) continue;
      const std::string name = entry.path().filename().string();
      const double began = test::cpu_seconds();
      const size_t num_strings = check_vectors(folder, name);
      MESSAGE(name, ": ", num_strings, " strings, ", test::cpu_seconds() - began, " s");
      CHECK(num_strings >= 20'000);
    }
  }

  TEST_CASE("TOK-04: every id of the vocabulary can be decoded, slots without a name too") {
    const auto kimi = load(kVectors + "/kimi");
    const int base = kimi->vocab_size() - 256;
    int num_text = 0;
    for (TokenId id = -1; id <= kimi->vocab_size(); ++id) {
      num_text += !kimi->bytes(id).empty();
      CHECK(kimi->is_control(id) == (id >= base && id < kimi->vocab_size()));
      CHECK(kimi->is_control(id) == !kimi->control_name(id).empty());
    }
    CHECK(num_text == base);
    CHECK(kimi->control_name(base + 3) == "<|open|>");
    CHECK(kimi->control_name(base + 200) == concat("<|reserved_token_", base + 200, "|>"));
    CHECK(kimi->control_id("<|open|>") == base + 3);
  }

  TEST_CASE("TOK-02, TOK-09: long runs take linear time and little stack") {
    for (const char* name : {"deepseek", "o200k", "kimi"}) {
      const auto tokenizer = load(kVectors + "/" + name);
      test::on_small_stack([&] {
        for (const char* unit :
             {"^", "a", "A", " ", "\n", "\r\n", "a\xCC\x81", "中", "🦊", "0", "'", "'s", "é", "\t "}) {
          const auto time_of = [&](size_t size) {
            const std::string text = repeat(unit, size / strlen(unit));
            double best = 1e9;
            for (int i = 0; i < 2; ++i) {
              const double began = test::cpu_seconds();
              const auto ids = tokenizer->encode(text);
              REQUIRE_MESSAGE(ids.is_ok(), ids.status().message());
              best = std::min(best, test::cpu_seconds() - began);
              if (i == 0) CHECK(test::decode(*tokenizer, ids.value()) == text);
            }
            return best;
          };
          const double small = time_of(125'000), large = time_of(1'000'000);
          INFO(name, ", 1 MB of '", unit, "': ", large, " s; an eighth of it: ", small, " s");
          CHECK(large < 24 * small + 0.25 * test::kSlowdown);  // eight times, and its logarithm
        }
      });
    }
  }

  TEST_CASE("TOK-03: names of control tokens in text are text; in markup they are the tokens") {
    for (const char* name : {"deepseek", "o200k", "kimi"}) {
      const auto tokenizer = load(kVectors + "/" + name);
      for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
        if (!tokenizer->is_control(id)) continue;
        const std::string spelled(tokenizer->control_name(id));
        for (const std::string& text :
             {spelled, "a" + spelled + "b", " " + spelled + " ", spelled + spelled}) {
          const std::vector<TokenId> ids = tokenizer->encode(text).value();
          for (const TokenId each : ids) CHECK(!tokenizer->is_control(each));
          CHECK(test::decode(*tokenizer, ids) == text);
        }
        CHECK(tokenizer->encode_markup(spelled).value() == std::vector<TokenId>{id});
      }
    }
  }

  TEST_CASE("TOK-05, TOK-08: nothing is put in front of text, and no text is no tokens") {
    for (const char* name : {"deepseek", "o200k", "kimi"}) {
      const auto tokenizer = load(kVectors + "/" + name);
      CHECK(tokenizer->encode("a").value().size() == 1);
      CHECK(tokenizer->encode("").value().empty());
      CHECK(tokenizer->encode_markup("").value().empty());
    }
  }

  TEST_CASE(
      "TOK-01, TOK-06: a stream of tokens is the text, malformed characters and spaces in front included") {
    for (const char* name : {"deepseek", "o200k", "kimi"}) {
      const auto tokenizer = load(kVectors + "/" + name);
      for (const std::string text :
           {"  two", " one", "🦊👨‍👩‍👧🇯🇵", "안녕하세요 สวัสดี", "e\xCC\x81"}) {
        Utf8Stream stream;
        std::string heard;
        for (const TokenId id : tokenizer->encode(text).value()) stream.push(tokenizer->bytes(id), heard);
        stream.finish(heard);
        CHECK(heard == text);
      }
      // A model may stop within a character: the vendors' decoders put U+FFFD there.
      std::vector<TokenId> ids =
          tokenizer->encode("\xEE\x80\x80").value();  // three bytes, no token of their own
      REQUIRE(ids.size() > 1);
      ids.pop_back();
      Utf8Stream stream;
      std::string heard;
      for (const TokenId id : ids) stream.push(tokenizer->bytes(id), heard);
      CHECK(heard.empty());
      stream.finish(heard);
      CHECK(heard == "\xEF\xBF\xBD");
    }
  }

  TEST_CASE("patterns mean what they meant in their own library") {
    CHECK(translate_pattern(R"(\s+(?!\S)|\p{Han}\p{Lu}\PL[\p{N}\s]\u3040)", "t").value() ==
          R"(\p{White_Space}+(?!\P{White_Space})|\p{sc:Han}\p{Lu}\P{L}[\p{N}\p{White_Space}]\x{3040})");
    CHECK(translate_pattern(R"([\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cc}&&[^\p{Han}a]]*)", "t").value() ==
          R"([^\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{sc:Han}a]*)");
    CHECK(pieces_of(R"([\p{Lo}&&[^\p{Han}]]+)", "あ中い々") == Pieces{"あ", "中", "い", "々"});
    CHECK(pieces_of(R"([\p{Han}]+)", "中、文〇々") ==
          Pieces{"中", "、", "文〇々"});  // the comma is of many scripts
    CHECK(pieces_of(R"(\s+)", "a\u180e b\u0085c") == Pieces{"a\u180e", " ", "b", "\u0085", "c"});
    CHECK(pieces_of(R"((?i:'s))", "'ſ'S") == Pieces{"'ſ", "'S"});
    CHECK(pieces_of("b*", "abba") == Pieces{"a", "bb", "a"});  // nothing is no piece
    CHECK(pieces_of(R"([]a]+)", "b]a") == Pieces{"b", "]a"});
    for (const char* refused : {R"(\w+)",
                                R"(\bx)",
                                "^a",
                                "a$",
                                "[a[b]]",
                                "[[:alpha:]]",
                                "[a&&[^b]]",
                                R"([\p{L}&&\p{N}])",
                                R"([^\p{L}&&[^a]])",
                                R"([\p{L}&&[^a]&&[^b]])",
                                "[a--b]",
                                "[a~~b]",
                                "(?<n>a)",
                                "(?R)",
                                "(*UTF)a",
                                R"(\Ca)",
                                R"(\1)",
                                R"(\p{^L})",
                                R"(\p)",
                                R"(\p{L)",
                                R"(\u12)",
                                "a\\",
                                "[a",
                                "(?x)a",
                                R"(\Q)"})
      CHECK_MESSAGE(translate_pattern(refused, "t").status().code() == Code::unsupported, refused);
    for (const char* broken : {"(a", "a{2,1}", "[b-a]", R"(\p{Klingon})", "+"})
      CHECK_MESSAGE(SplitPattern::compile(broken, "t").status().code() == Code::model, broken);
    CHECK(SplitPattern::compile(std::string(100'000, 'a'), "t").status().code() == Code::limit);
  }

  TEST_CASE("a pattern that would take for ever is given up") {
    for (const char* hostile : {"(a|aa)+b", "(a*)*b", "a*a*a*a*a*a*b", "(?:(?:a?){20}){20}b", "(a+)+$?b"}) {
      const auto compiled = SplitPattern::compile(hostile, "test");
      if (!compiled.is_ok()) continue;
      const double began = test::cpu_seconds();
      const Status status =
          compiled.value()->split(repeat("a", 20'000), [](std::string_view) { return Status::ok(); });
      INFO(hostile, ": ", test::cpu_seconds() - began, " s, ", status.message());
      CHECK((status.is_ok() || status.code() == Code::limit));
      CHECK(test::cpu_seconds() - began < 5 * test::kSlowdown);
    }
  }

  TEST_CASE("Kimi's text is cut at 400,000 characters and in runs of 25,000") {
    const auto kimi = load(kVectors + "/kimi");
    const auto parts = [&](std::initializer_list<std::string> list) {
      std::vector<TokenId> ids;
      for (const std::string& part : list) {
        const std::vector<TokenId> more = kimi->encode(part).value();
        ids.insert(ids.end(), more.begin(), more.end());
      }
      return ids;
    };
    const std::string run = repeat("中", 25'000);
    CHECK(kimi->encode(run + "0").value() == parts({run, "0"}));
    CHECK(kimi->encode("  " + run + "12").value() == parts({"  " + run, "12"}));
    const std::string mixed = repeat("1234 ", 80'000);  // 400,000
    CHECK(kimi->encode(mixed + "5678").value() == parts({mixed, "5678"}));
    CHECK(kimi->encode("12" + mixed).value() ==
          parts({"12" + mixed.substr(0, 399'998), mixed.substr(399'998)}));
  }

  TEST_CASE("load picks the tokenizer by the files that are there") {
    test::TempFolder folder;
    CHECK(fails(Tokenizer::load(folder.path()).status(), Code::not_found, "tiktoken.model"));
    folder.write("tokenizer.json", JsonFile().text());
    CHECK(load(folder.path())->vocab_size() == 256);
    folder.write("other.tiktoken", "x");
    CHECK(fails(Tokenizer::load(folder.path()).status(), Code::unsupported, "other.tiktoken"));
    folder.write("more.tiktoken", "x");
    CHECK(
        fails(Tokenizer::load(folder.path()).status(), Code::model, "'more.tiktoken' and 'other.tiktoken'"));
    folder.write("tiktoken.model", read(kVectors + "/kimi/tiktoken.model"));
    CHECK(load(folder.path())
              ->control_name(load(folder.path())->vocab_size() - 256)
              .starts_with("<|reserved_token_"));
    folder.write("tokenizer_config.json", "{");
    CHECK(fails(Tokenizer::load(folder.path()).status(), Code::json, "tokenizer_config.json"));
  }

  TEST_CASE("LOAD-11: hostile tiktoken files are typed errors") {
    const std::string ranks = read(kVectors + "/kimi/tiktoken.model");
    const auto status = [&](const std::string& bytes, const std::string& config = "{}") {
      return read_tiktoken(bytes, "tiktoken.model", config, "config").status();
    };
    CHECK(status(ranks).is_ok());
    std::string crlf = ranks;
    for (size_t at = 0; (at = crlf.find('\n', at)) != std::string::npos; at += 2) crlf.insert(at, "\r");
    CHECK(status(crlf + "\n").is_ok());
    CHECK(fails(status(""), Code::corrupt, "no ranks"));
    CHECK(fails(status("IQ== 0\nIg==\n"), Code::corrupt, "line 2"));
    CHECK(fails(status("IQ== 0\nIg== x\n"), Code::corrupt, "'Ig== x'"));
    CHECK(fails(status("I!== 0\n"), Code::corrupt, "line 1"));
    CHECK(fails(status("IQ= 0\n"), Code::corrupt, "line 1"));
    CHECK(fails(status(" 0\n"), Code::corrupt, "line 1"));
    CHECK(fails(status("IQ== -1\n"), Code::corrupt, "line 1"));
    CHECK(fails(status("IQ== 99999999999999999999\n"), Code::corrupt, "line 1"));
    CHECK(fails(status("IQ== 1\n"), Code::model, "rank 1, expected less"));
    CHECK(fails(status("IQ== 0\nIg== 0\n"), Code::model, "is also"));
    CHECK(fails(status("IQ== 0\nIQ== 1\n"), Code::model, "is two tokens"));
    CHECK(fails(status("IQ== 0\n"), Code::unsupported, "no token for byte 0"));
    CHECK(fails(status(ranks, "[]x"), Code::json, "config"));
    CHECK(fails(status(ranks, R"({"added_tokens_decoder": []})"), Code::model, "not an object"));
    for (const char* id : {"3", "x", "-1", "99999", ""})
      CHECK(fails(status(ranks, concat(R"({"added_tokens_decoder": {")", id, R"(": {"content": "<|x|>"}}})")),
                  Code::model, "expected"));
    CHECK(
        fails(status(ranks, R"({"added_tokens_decoder": {"900": {"content": 3}}})"), Code::model, "content"));
    CHECK(fails(
        status(ranks,
               R"({"added_tokens_decoder": {"900": {"content": "<|x|>"}, "901": {"content": "<|x|>"}}})"),
        Code::model, "'<|x|>' is two tokens"));
    for (size_t size = 0; size < ranks.size(); size += 13) {
      const Status cut = status(ranks.substr(0, size));
      const bool is_whole_line = size > 0 && (ranks[size - 1] == '\n' || ranks[size] == '\n');
      if (!is_whole_line || size < 256 * 8) CHECK(!cut.is_ok());
    }
  }

  TEST_CASE("LOAD-11: hostile tokenizer.json files are typed errors") {
    CHECK(JsonFile().status().is_ok());
    JsonFile file;
    const auto with = [&](std::string JsonFile::*member, const std::string& text) {
      JsonFile changed;
      changed.*member = text;
      return changed.status();
    };
    CHECK(fails(read_tokenizer_json("[]", "t").status(), Code::model, "expected an object"));
    CHECK(fails(read_tokenizer_json("{", "t").status(), Code::json, "t"));
    CHECK(fails(read_tokenizer_json(JsonFile().text(false), "t").status(), Code::unsupported,
                "no token for byte 0"));
    CHECK(fails(with(&JsonFile::normalizer, R"({"type": "NFC"})"), Code::unsupported, "normalizer is 'NFC'"));
    CHECK(fails(with(&JsonFile::normalizer, R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}]})"),
                Code::unsupported, "normalizer.normalizers[0] is 'NFKC'"));
    CHECK(with(&JsonFile::normalizer, R"({"type": "Sequence", "normalizers": []})").is_ok());
    CHECK(fails(with(&JsonFile::pre, "null"), Code::unsupported, "expected Sequence"));
    CHECK(fails(with(&JsonFile::pre, R"({"type": "Sequence", "pretokenizers": []})"), Code::unsupported,
                "no ByteLevel"));
    CHECK(fails(with(&JsonFile::pre, R"({"type": "Metaspace"})"), Code::unsupported, "'Metaspace'"));
    CHECK(fails(with(&JsonFile::pre, R"({"type": "ByteLevel"})"), Code::unsupported, "add_prefix_space"));
    CHECK(fails(with(&JsonFile::pre, R"({"type": "Split", "behavior": "Removed"})"), Code::unsupported,
                "behavior"));
    CHECK(fails(with(&JsonFile::pre, R"({"type": "Split", "behavior": "Isolated", "invert": true})"),
                Code::unsupported, "invert"));
    CHECK(fails(
        with(&JsonFile::pre, R"({"type": "Split", "behavior": "Isolated", "pattern": {"String": " "}})"),
        Code::unsupported, "Regex"));
    CHECK(fails(with(&JsonFile::pre, split_of("(a")), Code::model, "pretokenizers[0].pattern"));
    CHECK(fails(with(&JsonFile::pre, split_of(R"(\w)")), Code::unsupported, "pretokenizers[0].pattern"));
    CHECK(fails(with(&JsonFile::decoder, R"({"type": "Fuse"})"), Code::unsupported, "'Fuse'"));
    CHECK(fails(with(&JsonFile::model, R"("dropout": 0.1, )"), Code::unsupported, "dropout"));
    CHECK(fails(with(&JsonFile::model, R"("unk_token": "?", )"), Code::unsupported, "unk_token"));
    CHECK(fails(with(&JsonFile::model, R"("byte_fallback": true, )"), Code::unsupported, "byte_fallback"));
    CHECK(fails(with(&JsonFile::model, R"("end_of_word_suffix": "</w>", )"), Code::unsupported,
                "end_of_word_suffix"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "ab": -1)"), Code::model, "'ab'"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "ab": 1.5)"), Code::model, "'ab'"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "ab": 3)"), Code::model, "is also"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "ab": 2000000)"), Code::limit, "'ab'"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "中": 300)"), Code::model, "not written in bytes"));
    CHECK(fails(with(&JsonFile::vocab, R"(, "": 300)"), Code::model, "is empty"));
    CHECK(fails(with(&JsonFile::vocab, concat(", \"", std::string(5000, 'a'), "\": 300")), Code::limit,
                "5000 bytes"));
    CHECK(with(&JsonFile::vocab, R"(, "ab": 70000)").is_ok());  // a gap
    CHECK(fails(with(&JsonFile::merges, R"("a b")"), Code::model, "merge 0 makes 'ab'"));
    CHECK(fails(with(&JsonFile::merges, R"("a xyz")"), Code::model, "merges[0] names 'xyz'"));
    CHECK(fails(with(&JsonFile::merges, R"(["a"])"), Code::model, "merges[0]"));
    CHECK(fails(with(&JsonFile::merges, "3"), Code::model, "merges[0]"));
    CHECK(fails(with(&JsonFile::added, R"({"id": 300, "content": "word"})"), Code::unsupported,
                "ordinary text"));
    CHECK(fails(with(&JsonFile::added, R"({"id": 300, "content": "<x>", "lstrip": true})"), Code::unsupported,
                "lstrip"));
    CHECK(fails(with(&JsonFile::added, R"({"id": 3, "content": "<x>"})"), Code::model, "is also"));
    CHECK(
        fails(with(&JsonFile::added, R"({"id": "3", "content": "<x>"})"), Code::model, "added_tokens[0].id"));
    CHECK(fails(with(&JsonFile::added, R"({"id": 300})"), Code::model, "content"));
    CHECK(fails(with(&JsonFile::added, R"({"id": 300, "content": "<x>"}, {"id": 301, "content": "<x>"})"),
                Code::model, "'<x>' is two tokens"));
    CHECK(with(&JsonFile::added, R"({"id": 300, "content": "<x>"})").is_ok());
    const std::string whole = read(kVectors + "/o200k/tokenizer.json");
    for (size_t size = 0; size + 2 < whole.size(); size += 97)
      CHECK(!read_tokenizer_json(std::string_view(whole).substr(0, size), "t").is_ok());
  }

  TEST_CASE("merges follow their order, the whole piece where the file says so") {
    JsonFile file;
    file.vocab = R"(, "bc": 256, "ab": 257, "abc": 258)";
    file.merges = R"("b c", ["a", "b"])";
    const auto encode = [&] {
      const auto read = read_tokenizer_json(file.text(), "t");
      REQUIRE_MESSAGE(read.is_ok(), read.status().message());
      return test::spell(*read.value(), read.value()->encode("abcab").value());
    };
    CHECK(encode() == "a|bc|ab");
    file.merges = R"("a b", "b c")";
    CHECK(encode() == "ab|c|ab");
    file.merges = R"("a b", "b c", "ab c")";
    CHECK(encode() == "abc|ab");
    file.merges.clear();
    file.vocab += R"(, "abcab": 259)";
    CHECK(encode() == "a|b|c|a|b");
    file.model = R"("ignore_merges": true, )";
    CHECK(encode() == "abcab");
  }
}

}  // namespace
}  // namespace dsa
