#include "text/tokenizer.h"

#include <doctest/doctest.h>
#include <sentencepiece_processor.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>

#include "support/small_stack.h"
#include "support/temp_folder.h"
#include "support/tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace dsa {
namespace {

std::string model_bytes() {
  std::ifstream file(DSA_SOURCE_DIR "/tests/support/tokenizer/tokenizer.model", std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// A model file written by hand.
class Model {
 public:
  enum Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  Model& piece(const std::string& text, int type, float score = 0) {
    std::string message = field(1, 2) + varint(text.size()) + text;
    message += field(2, 5) + std::string(reinterpret_cast<const char*>(&score), 4);
    message += field(3, 0) + varint(uint64_t(type));
    pieces_ += field(1, 2) + varint(message.size()) + message;
    return *this;
  }
  Model& base() { return bytes_only().piece("▁", normal, -9); }
  Model& bytes_only() {
    piece("[UNK]", unknown);
    for (int i = 0; i < 256; ++i) {
      char name[8];
      snprintf(name, sizeof name, "<0x%02X>", unsigned(i));
      piece(name, byte);
    }
    return *this;
  }
  Model& trainer(int number, uint64_t value) { return trainer_ += field(number, 0) + varint(value), *this; }
  Model& normalizer(int number, uint64_t value) {
    return normalizer_ += field(number, 0) + varint(value), *this;
  }
  Model& charsmap(const std::string& bytes) {
    return normalizer_ += field(2, 2) + varint(bytes.size()) + bytes, *this;
  }
  std::string bytes() const {
    return pieces_ + field(2, 2) + varint(trainer_.size()) + trainer_ + field(3, 2) +
           varint(normalizer_.size()) + normalizer_;
  }
  static Model sound() { return Model().trainer(3, 2).normalizer(3, 0).normalizer(4, 0); }

 private:
  static std::string varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += char(uint8_t(value) | 0x80);
    return out + char(value);
  }
  static std::string field(int number, int wire) { return varint(uint64_t(number) << 3 | uint64_t(wire)); }

  std::string pieces_, trainer_, normalizer_;
};

Status failure_of(const Model& model) {
  return SentencePieceTokenizer::from_bytes(model.bytes(), "test.model").status();
}

const std::vector<std::string> kTexts = {
    "Hello, world!",
    " The capital of Japan is Tokyo.",
    "  two spaces in front, two behind  ",
    "tabs\tand\nline feeds\r\n\n\n",
    "12 + 7 = 19, 4821",
    "中文 mixed with Latin 123 and 日本語です",
    "안녕하세요 🦊 👨‍👩‍👧 🇯🇵 สวัสดี",
    "a▁b ▁ ▁▁",
    std::string("NUL \0 inside", 12),
    "<0x41><0xE2> <unk> <s> </s>",
    "\xEF\xBB\xBF"
    "byte order mark",
    "e\xCC\x81 is not \xC3\xA9",
    " ",
    "▁",
};

TEST_SUITE("text/tokenizer") {
  TEST_CASE("text comes back byte for byte") {
    const auto tokenizer = test::tokenizer();
    for (const std::string& text : kTexts)
      CHECK(test::decode(*tokenizer, tokenizer->encode(text).value()) == text);
    CHECK(test::spell(*tokenizer, tokenizer->encode("The fox went to the market.").value()) ==
          "The| fox| went| to| the| market|.");
  }

  TEST_CASE("TOK-04: ids are those of the library") {
    const auto tokenizer = test::tokenizer();
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(model_bytes()).ok());
    CHECK(tokenizer->vocab_size() == library.GetPieceSize());
    for (const std::string& text : kTexts) {
      if (text.find("▁") != std::string::npos) continue;  // the library writes it as a space
      std::vector<int> ids;
      REQUIRE(library.Encode(text, &ids).ok());
      CHECK(tokenizer->encode(text).value() == ids);
    }
    // Long texts, which we cut.
    for (const std::string& unit :
         {std::string("The red fox went to the river, 27 + 9 = 36. "), std::string("s"), std::string(" "),
          std::string("thehorse"), std::string("日本語 fox")}) {
      const std::string text = repeat(unit, 30'000 / unit.size());
      std::vector<int> ids;
      REQUIRE(library.Encode(text, &ids).ok());
      CHECK(tokenizer->encode(text).value() == ids);
    }
  }

  TEST_CASE("TOK-04: every id has bytes or a name, and others have nothing") {
    const auto tokenizer = test::tokenizer();
    int controls = 0;
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      CHECK(tokenizer->is_control(id) == tokenizer->bytes(id).empty());
      CHECK(tokenizer->is_control(id) == !tokenizer->control_name(id).empty());
      if (tokenizer->is_control(id)) {
        CHECK(tokenizer->control_id(tokenizer->control_name(id)) == id);
        ++controls;
      }
    }
    CHECK(controls == 12);
    for (const TokenId id : {TokenId(-1), TokenId(INT32_MIN), tokenizer->vocab_size(), TokenId(INT32_MAX)}) {
      CHECK(tokenizer->bytes(id).empty());
      CHECK(!tokenizer->is_control(id));
      CHECK(tokenizer->control_name(id).empty());
    }
    CHECK(!tokenizer->control_id("The"));
    CHECK(!tokenizer->control_id(""));
    // A byte token is its byte, also one that is half a character.
    CHECK(tokenizer->bytes(tokenizer->encode("🦊").value()[0]) == "\xF0");
  }

  TEST_CASE("TOK-02 TOK-09: a megabyte of one letter, on a small stack, in linear time") {
    test::on_small_stack([] {
      const auto tokenizer = test::tokenizer();
      for (const char* unit : {"a", "s", "^", " ", "\n", "가", "e\xCC\x81", "▁", "aB", "\xC2\xA0", "e"}) {
        const std::string text = repeat(unit, 1'000'000 / std::string_view(unit).size());
        const auto begin = std::chrono::steady_clock::now();
        const auto ids = tokenizer->encode(text);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        REQUIRE(ids.is_ok());
        CHECK(test::decode(*tokenizer, ids.value()) == text);
        CHECK_MESSAGE(seconds.count() < 15, unit);  // about 0.3 s where nothing else runs
      }
    });
  }

  TEST_CASE("TOK-02: text without a place to cut is cut all the same and still comes back") {
    const auto tokenizer = test::tokenizer();
    const std::string text = repeat("s", 700'001);
    CHECK(test::decode(*tokenizer, tokenizer->encode(text).value()) == text);
  }

  TEST_CASE("TOK-03: names of control tokens in text are text; in markup they are the tokens") {
    const auto tokenizer = test::tokenizer();
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_control(id)) continue;
      const std::string name(tokenizer->control_name(id));
      for (const std::string& text : {name, "a" + name + "b", " " + name + " ", name + name, "▁" + name}) {
        const std::vector<TokenId> ids = tokenizer->encode(text).value();
        for (const TokenId each : ids) CHECK(!tokenizer->is_control(each));
        CHECK(test::decode(*tokenizer, ids) == text);
      }
      CHECK(tokenizer->encode_markup(name).value() == std::vector<TokenId>{id});
    }
    CHECK(test::spell(*tokenizer,
                      tokenizer->encode_markup("<|open|>role<|sep|>the <|open <|close|><|").value()) ==
          "<|open|>|r|ole|<|sep|>|t|he| |<|||o|pen| |<|close|>|<||");
    // Ordinary text between two names is encoded by itself.
    CHECK(tokenizer->encode_markup("The fox").value() == tokenizer->encode("The fox").value());
  }

  TEST_CASE("TOK-05: nothing is put in front of text") {
    const auto tokenizer = test::tokenizer();
    CHECK(tokenizer->encode("The").value() == tokenizer->encode_markup("The").value());
    CHECK(tokenizer->encode("The").value().size() == 1);
  }

  TEST_CASE("TOK-06: one and two spaces in front are there, token by token as well") {
    const auto tokenizer = test::tokenizer();
    for (const std::string text : {"the", " the", "  the", "   the"}) {
      std::string stream;
      const std::vector<TokenId> ids = tokenizer->encode(text).value();
      for (const TokenId id : ids) stream += tokenizer->bytes(id);
      CHECK(stream == text);
    }
  }

  TEST_CASE("TOK-08: no text is no tokens") {
    const auto tokenizer = test::tokenizer();
    CHECK(tokenizer->encode("").value().empty());
    CHECK(tokenizer->encode_markup("").value().empty());
  }

  TEST_CASE("what is not UTF-8 is refused with its position") {
    const auto tokenizer = test::tokenizer();
    for (const bool is_markup : {false, true}) {
      const Status status =
          (is_markup ? tokenizer->encode_markup("abc\xFF<|open|>") : tokenizer->encode("abc\xFF<|open|>"))
              .status();
      CHECK(status.code() == Code::utf8);
      CHECK(status.info().position == 3);
    }
    CHECK(tokenizer->encode("\xED\xA0\x80").status().code() == Code::utf8);
  }

  TEST_CASE("a folder without a tokenizer that we read says so") {
    test::TempFolder folder;
    CHECK(Tokenizer::load(folder.path()).status().code() == Code::not_found);
    folder.write("tokenizer.model", "");
    CHECK(Tokenizer::load(folder.path()).status().code() == Code::corrupt);
    CHECK(Tokenizer::load(folder.path()).status().message().find(folder.file("tokenizer.model")) !=
          std::string::npos);
  }

  TEST_CASE("LOAD-11: a hostile tokenizer file is a typed error") {
    CHECK(failure_of(Model::sound().base().piece("a", Model::normal)).is_ok());
    CHECK(failure_of(Model::sound()).code() == Code::corrupt);
    CHECK(failure_of(Model().base()).code() == Code::unsupported);                // unigram
    CHECK(failure_of(Model().trainer(3, 2).base()).code() == Code::unsupported);  // dummy prefix
    CHECK(failure_of(Model().trainer(3, 2).normalizer(3, 0).base()).code() == Code::unsupported);  // spaces
    CHECK(failure_of(Model::sound().charsmap(std::string(100, '\xFF')).base()).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().trainer(24, 1).base()).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().normalizer(5, 0).base()).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().piece("[UNK]", Model::unknown)).code() == Code::unsupported);  // no bytes
    CHECK(failure_of(Model::sound().bytes_only()).code() ==
          Code::unsupported);  // a space would be its marker's bytes
    CHECK(failure_of(Model::sound().base().piece("", Model::normal)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("a\xFF", Model::normal)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("a", Model::normal, NAN)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("a", Model::normal, INFINITY)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("a", Model::normal).piece("a", Model::control)).code() ==
          Code::model);
    CHECK(failure_of(Model::sound().base().piece("<unk>", Model::unknown)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("<0xGG>", Model::byte)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("x", Model::control)).code() == Code::model);
    CHECK(failure_of(Model::sound().base().piece("<|x|>", Model::user_defined)).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().base().piece("x", Model::unused)).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().base().piece("x", 77)).code() == Code::unsupported);
    CHECK(failure_of(Model::sound().base().piece(std::string(100'000, 'x'), Model::normal)).code() ==
          Code::limit);
    CHECK(SentencePieceTokenizer::from_bytes(std::string((64 << 20) + 1, ' '), "t").status().code() ==
          Code::limit);
  }

  TEST_CASE("LOAD-11: every truncation of a tokenizer file is an error") {
    const std::string bytes = model_bytes();
    for (size_t size = 0; size < bytes.size(); size += 7) {
      const auto tokenizer =
          SentencePieceTokenizer::from_bytes(std::string_view(bytes).substr(0, size), "test");
      CHECK(!tokenizer.is_ok());
    }
  }
}

}  // namespace
}  // namespace dsa
