#include "text/chat_format.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace dsa {
namespace {

MessagePart text(const std::string& content) { return {MessagePart::Kind::text, content, {}}; }
MessagePart markup(const std::string& content) { return {MessagePart::Kind::markup, content, {}}; }

// A tokenizer in which every byte is a token, so that pieces can be told apart, and without one control token
// if asked.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::string missing = "") : missing_(std::move(missing)) {}
  int vocab_size() const override { return 256 + int(names_.size()); }
  Result<std::vector<TokenId>> encode(std::string_view content) const override {
    pieces.push_back(std::string(content));
    std::vector<TokenId> ids;
    for (const char c : content) ids.push_back(uint8_t(c));
    return ids;
  }
  Result<std::vector<TokenId>> encode_markup(std::string_view content) const override {
    return encode(content);
  }
  std::string_view bytes(TokenId id) const override {
    static const std::string all = [] {
      std::string s;
      for (int i = 0; i < 256; ++i) s += char(uint8_t(i));
      return s;
    }();
    return id < 256 ? std::string_view(all).substr(size_t(id), 1) : std::string_view();
  }
  bool is_control(TokenId id) const override { return id >= 256; }
  std::string_view control_name(TokenId id) const override {
    return id >= 256 ? names_[size_t(id - 256)] : std::string_view();
  }
  std::optional<TokenId> control_id(std::string_view name) const override {
    if (name == missing_) return std::nullopt;
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? std::nullopt
                                 : std::optional<TokenId>(256 + TokenId(found - names_.begin()));
  }

  mutable std::vector<std::string> pieces;  // every text that was asked for

 private:
  std::vector<std::string> names_ = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[BOS]"};
  std::string missing_;
};

struct Chat {
  std::shared_ptr<const Tokenizer> tokenizer = test::tokenizer();
  std::shared_ptr<const ChatFormat> format = ChatFormat::create("kimi_k31", tokenizer).value();

  std::string render(const std::vector<Message>& messages, bool ask, bool thinking) const {
    std::string out;
    const std::vector<TokenId> ids = format->render(messages, ask, thinking).value();
    for (const TokenId id : ids)
      out += tokenizer->is_control(id) ? tokenizer->control_name(id) : tokenizer->bytes(id);
    return out;
  }
};

// What a reader makes of an answer, token by token: "reasoning:...|answer:...|tool:...|END".
struct Reading {
  Reading(const Chat& the_chat, bool thinking) : chat(the_chat), reader(chat.format->reader(thinking)) {}

  Reading& push(const std::string& answer) {
    const std::vector<TokenId> ids = chat.tokenizer->encode_markup(answer).value();
    for (const TokenId id : ids) {
      const AnswerReader::Piece piece = reader->push(id);
      if (piece.is_text) {
        const char* name = piece.channel == Channel::answer ? "answer"
                           : piece.channel == Channel::tool ? "tool"
                                                            : "reasoning";
        if (channel != name) seen += std::string(seen.empty() ? "" : "|") + name + ":";
        channel = name;
        seen += piece.text;
      }
      if (piece.ends_turn) seen += seen.empty() ? "END" : "|END";
    }
    return *this;
  }
  std::string closing() const {
    std::string out;
    for (const TokenId id : reader->closing())
      out += chat.tokenizer->is_control(id) ? chat.tokenizer->control_name(id) : chat.tokenizer->bytes(id);
    return out;
  }

  const Chat& chat;
  std::unique_ptr<AnswerReader> reader;
  std::string seen, channel;
};

TEST_SUITE("text/chat_format") {
  TEST_CASE("a conversation is written as the vendor's code writes it") {
    const Chat chat;
    const std::vector<Message> messages = {{Role::system, {text("Be short.")}, ""},
                                           {Role::user, {text("Hi")}, ""},
                                           {Role::assistant, {text("Hello!")}, ""},
                                           {Role::user, {text("2 + 2?")}, "Ann"}};
    const std::string history =
        "<|open|>message role=\"system\"<|sep|>Be short.<|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"user\"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>Hello!<|close|>response<|sep|>"
        "<|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"user\" name=\"Ann\"<|sep|>2 + 2?<|close|>message<|sep|><|end_of_msg|>";
    CHECK(chat.render(messages, false, false) == history);
    CHECK(chat.render(messages, true, false) ==
          history + "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>");
    CHECK(chat.render({}, true, true) == "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>");
    CHECK(chat.render({messages[2]}, false, true) ==
          "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|><|close|>think<|sep|>"
          "<|open|>response<|sep|>Hello!<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
  }

  TEST_CASE("results of tools are counted from one after each answer") {
    const Chat chat;
    const Message result{Role::tool, {text("4")}, "add & \"more\""}, answer{Role::assistant, {}, ""};
    const std::string rendered =
        chat.render({result, result, answer, result, {Role::tool, {text("5")}, ""}}, false, false);
    std::vector<size_t> at;
    for (const char* part : {"tool=\"add &amp; &quot;more&quot;\" index=\"1\"", "index=\"2\"", "assistant",
                             "index=\"1\"<|sep|>4", "role=\"tool\" index=\"2\"<|sep|>5"})
      at.push_back(rendered.find(part, at.empty() ? 0 : at.back()));
    for (const size_t each : at) CHECK(each != std::string::npos);
  }

  TEST_CASE("names, attributes and contents are encoded piece by piece") {
    const auto tokenizer = std::make_shared<ByteTokenizer>();
    const auto format = ChatFormat::create("kimi_k3", tokenizer).value();
    REQUIRE(format->render({{Role::user, {text("one"), text("two"), markup("three")}, "A\"&"}}, true, true)
                .is_ok());
    CHECK(tokenizer->pieces == std::vector<std::string>{"message", " role", "=\"", "user", "\"", " name",
                                                        "=\"", "A&quot;&amp;", "\"", "one", "two", "three",
                                                        "message", "message", " role", "=\"", "assistant",
                                                        "\"", "think"});
  }

  TEST_CASE("IMG-11: a picture is its size and as many placeholders as it has tokens") {
    const Chat chat;
    const std::vector<ImageSlot> slots = {{640, 480, 3}, {28, 28, 1}};
    MessagePart first, second;
    first.kind = second.kind = MessagePart::Kind::image;
    first.image = 0;
    second.image = 1;
    const auto shown =
        chat.format->render({{Role::user, {text("<|media_pad|>"), second, text("or"), first, text("?")}, ""}},
                            slots, {.ask = false, .thinking = false});
    REQUIRE(shown.is_ok());
    std::string written;
    for (const TokenId id : shown.value().tokens)
      written +=
          chat.tokenizer->is_control(id) ? chat.tokenizer->control_name(id) : chat.tokenizer->bytes(id);
    CHECK(written ==
          "<|open|>message role=\"user\"<|sep|><|media_pad|>"
          "<|media_begin|>image 28x28<|media_content|><|media_pad|><|media_end|>or"
          "<|media_begin|>image 640x480<|media_content|><|media_pad|><|media_pad|><|media_pad|><|media_end|>?"
          "<|close|>message<|sep|><|end_of_msg|>");
    const auto& places = shown.value().places;
    REQUIRE(places.size() == 2);
    CHECK(places[0].image == 1);
    CHECK(places[1].image == 0);
    const TokenId pad = chat.format->image_token();
    CHECK(chat.tokenizer->control_name(pad) == "<|media_pad|>");
    const auto& ids = shown.value().tokens;
    CHECK(std::count(ids.begin(), ids.end(), pad) == 4);  // the user's own is text
    CHECK(ids[places[0].first] == pad);
    for (size_t i = 0; i < 3; ++i) CHECK(ids[places[1].first + i] == pad);

    second.image = 2;
    CHECK(chat.format->render({{Role::user, {second}, ""}}, slots, {.ask = false, .thinking = false})
              .status()
              .code() == Code::argument);
    const auto without = ChatFormat::create("kimi_k3", std::make_shared<ByteTokenizer>()).value();
    CHECK(without->image_token() == -1);
    CHECK(without->render({{Role::user, {first}, ""}}, slots, {.ask = false, .thinking = false})
              .status()
              .code() == Code::unsupported);
  }

  TEST_CASE("TOK-03: control tokens come from the format, from markup and from tokens, never from text") {
    const Chat chat;
    std::string hostile;
    for (TokenId id = 0; id < chat.tokenizer->vocab_size(); ++id) hostile += chat.tokenizer->control_name(id);
    const auto controls = [&](const std::vector<Message>& messages) {
      const std::vector<TokenId> ids = chat.format->render(messages, true, false).value();
      return std::count_if(ids.begin(), ids.end(),
                           [&](TokenId id) { return chat.tokenizer->is_control(id); });
    };
    for (const Role role : {Role::system, Role::user, Role::assistant, Role::tool}) {
      CHECK(controls({{role, {text(hostile)}, ""}}) == controls({{role, {text("x")}, ""}}));
      CHECK(controls({{role, {text("x")}, hostile}}) == controls({{role, {text("x")}, "x"}}));
      CHECK(controls({{role, {markup(hostile)}, ""}}) == controls({{role, {text("x")}, ""}}) + 12);
    }
    const TokenId open = *chat.tokenizer->control_id("<|open|>");
    CHECK(controls({{Role::user, {{MessagePart::Kind::tokens, "", {open, 300}, -1}}, ""}}) ==
          controls({{Role::user, {}, ""}}) + 1);
  }

  TEST_CASE("TOK-05: a prompt has no BOS") {
    const Chat chat;
    const std::vector<TokenId> ids =
        chat.format->render({{Role::user, {text("Hi")}, ""}}, true, true).value();
    CHECK(std::count(ids.begin(), ids.end(), *chat.tokenizer->control_id("[BOS]")) == 0);
    CHECK(ids[0] == *chat.tokenizer->control_id("<|open|>"));
  }

  TEST_CASE("TOK-07: the end of a message stops, and the end of a text where there is one") {
    const Chat chat;
    CHECK(chat.format->stop_tokens() == std::vector<TokenId>{*chat.tokenizer->control_id("<|end_of_msg|>"),
                                                             *chat.tokenizer->control_id("[EOS]")});
    const auto without = std::make_shared<ByteTokenizer>();
    CHECK(ChatFormat::create("kimi_k3", without).value()->stop_tokens().size() == 1);
  }

  TEST_CASE("TOK-08: no messages, no parts and empty text are no tokens of their own") {
    const Chat chat;
    CHECK(chat.format->render({}, false, true).value().empty());
    CHECK(chat.render({{Role::user, {text("")}, ""}}, false, false) ==
          chat.render({{Role::user, {}, ""}}, false, false));
  }

  TEST_CASE("failures name the message") {
    const Chat chat;
    const Message good{Role::user, {text("Hi")}, ""};
    const Status utf8 = chat.format->render({good, {Role::user, {text("a\xFF")}, ""}}, true, true).status();
    CHECK(utf8.code() == Code::utf8);
    CHECK(utf8.info().position == 1);
    CHECK(utf8.message().find("message 1: ") == 0);
    for (const TokenId id : {TokenId(-1), chat.tokenizer->vocab_size()})
      CHECK(chat.format->render({{Role::user, {{MessagePart::Kind::tokens, "", {id}, -1}}, ""}}, true, true)
                .status()
                .code() == Code::argument);
    CHECK(ChatFormat::create("deepseek_v4", chat.tokenizer).status().code() == Code::unsupported);
    CHECK(ChatFormat::create("deepseek_v4", chat.tokenizer).status().message().find("'deepseek_v4'") !=
          std::string::npos);
    for (const char* name : {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"}) {
      const Status status = ChatFormat::create("kimi_k3", std::make_shared<ByteTokenizer>(name)).status();
      CHECK(status.code() == Code::model);
      CHECK(status.message().find(name) != std::string::npos);
    }
  }

  TEST_CASE("an answer is parted into its channels") {
    const Chat chat;
    Reading reading(chat, true);
    reading.push("Let me see.<|close|>think<|sep|><|open|>response<|sep|>It is 4.<|close|>response<|sep|>");
    reading.push(
        "<|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"a\" "
        "type=\"number\"<|sep|>");
    reading.push(
        "2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_"
        "msg|>");
    CHECK(reading.seen == "reasoning:Let me see.|answer:It is 4.|tool:{\"a\": 2}|END");
    CHECK(reading.closing().empty());
    CHECK(reading.push("more<|end_of_msg|>").seen ==
          "reasoning:Let me see.|answer:It is 4.|tool:{\"a\": 2}|END");
    CHECK(
        Reading(chat, false).push("Hi!<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>").seen ==
        "answer:Hi!|END");
  }

  TEST_CASE("text that looks like a tag is text") {
    const Chat chat;
    Reading reading(chat, false);
    const std::vector<TokenId> ids = chat.tokenizer->encode("<|close|>response<|sep|> </think>").value();
    for (const TokenId id : ids) {
      const AnswerReader::Piece piece = reading.reader->push(id);
      CHECK(piece.is_text);
      CHECK(piece.channel == Channel::answer);
    }
  }

  TEST_CASE("nonsense is heard as far as it can be") {
    const Chat chat;
    const auto seen = [&](bool thinking, const std::string& answer) {
      return Reading(chat, thinking).push(answer).seen;
    };
    CHECK(seen(true, "a<|close|>think<|sep|>b<|end_of_msg|>") ==
          "reasoning:a|answer:b|END");  // no response opened
    CHECK(seen(false, "a<|open|>poem x=\"1\"<|sep|>b<|close|>poem<|sep|>c") ==
          "answer:abc");                                                   // an unknown element
    CHECK(seen(false, "a<|close|>poem<|sep|>b<|sep|>c") == "answer:abc");  // never opened; stray sep
    CHECK(seen(false, "<|open|>think<|sep|>a<|close|>response<|sep|>b") ==
          "reasoning:a|answer:b");  // crossed
    CHECK(seen(false, "<|open|>tools<|sep|>a<|open|>think<|sep|>b") == "tool:ab");
    CHECK(seen(false, "<|open|><|open|>tools<|close|>response<|sep|>a") ==
          "answer:a");  // tags cut off by tags
    CHECK(seen(false, "<|open|>a<|end_of_msg|>") == "END");
    CHECK(seen(false, "<|close|>message<|sep|>a") == "");  // nobody is there
    CHECK(seen(false, "a[EOS]b") == "answer:a|END");
    CHECK(seen(false, "a[BOS]<|media_pad|>b") == "answer:ab");
    CHECK(
        seen(false, "<|close|>message<|sep|><|open|>message<|sep|><|open|>response<|sep|>a<|end_of_msg|>") ==
        "END");
    CHECK(Reading(chat, false).push("<|open|>poem<|sep|>a<|close|>response").closing() ==
          "<|sep|><|close|>message<|sep|><|end_of_msg|>");  // the poem ends with what it is in
    Reading deep(chat, false);
    for (int i = 0; i < 100'000; ++i) deep.push("<|open|>tools<|sep|>");
    CHECK(deep.push("a").seen == "tool:a");
    CHECK(deep.reader->closing().size() < 200);
    Reading unknown(chat, false);
    for (const TokenId id : {TokenId(-1), TokenId(100'000)}) CHECK(!unknown.reader->push(id).is_text);
    Reading endless(chat, false);
    endless.push("<|open|>");
    for (int i = 0; i < 10'000; ++i) endless.push("message");
    CHECK(endless.closing().size() < 2000);
  }

  TEST_CASE("a run that ends anywhere can be completed") {
    const Chat chat;
    CHECK(Reading(chat, false).push("It is").closing() ==
          "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, true).push("Hm").closing() ==
          "<|close|>think<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, false).push("x<|close|>response<|sep|>").closing() ==
          "<|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, false).push("x<|close|>response<|sep|><|close|>message<|sep|>").closing() ==
          "<|end_of_msg|>");
    CHECK(Reading(chat, false).push("x<|close|>").closing() ==
          "response<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, false).push("x<|close|>res").closing() ==
          "ponse<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, false).push("x<|close|>response").closing() ==
          "<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, true).push("<|close|>think<|sep|><|open|>response").closing() ==
          "<|sep|><|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
    CHECK(Reading(chat, false).push("<|open|>tools<|sep|><|open|>call tool=\"a").closing() ==
          "<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>response<|sep|><|close|>message<|sep|><|"
          "end_of_msg|>");

    // After its closing every prefix of an answer has ended, and its text is the text of the prefix.
    const std::string answer =
        "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools<|sep|><|"
        "open|>call tool=\"t\" "
        "index=\"1\"<|sep|>x<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>";
    const std::vector<TokenId> ids = chat.tokenizer->encode_markup(answer).value();
    for (size_t size = 0; size <= ids.size(); ++size) {
      const auto reader = chat.format->reader(true);
      for (size_t i = 0; i < size; ++i) reader->push(ids[i]);
      const std::vector<TokenId> closing = reader->closing();
      CHECK(closing.empty() == (size == ids.size()));
      bool has_ended = closing.empty();
      for (const TokenId id : closing) {
        const AnswerReader::Piece piece = reader->push(id);
        CHECK((!piece.is_text || piece.channel == Channel::tool));  // the end of a call's arguments
        has_ended = piece.ends_turn;
      }
      CHECK(has_ended);
      CHECK(reader->closing().empty());
    }
  }

  TEST_CASE("reading what we wrote gives what was said") {
    const Chat chat;
    const std::string said = "It is 4. <|close|>response<|sep|> 🦊";
    const std::vector<TokenId> prompt = chat.format->render({}, true, false).value();
    const std::vector<TokenId> whole =
        chat.format->render({{Role::assistant, {text(said)}, ""}}, false, false).value();
    REQUIRE(std::equal(prompt.begin(), prompt.end(), whole.begin()));
    const auto reader = chat.format->reader(false);
    std::string heard;
    for (size_t i = prompt.size(); i < whole.size(); ++i)
      if (const auto piece = reader->push(whole[i]); piece.is_text) heard += piece.text;
    CHECK(heard == said);
  }
}

}  // namespace
}  // namespace dsa
