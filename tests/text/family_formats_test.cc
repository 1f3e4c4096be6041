// The chat formats of the families beside Kimi K3: what they write, and what they make of answers.
#include <doctest/doctest.h>

#include "support/byte_tokenizer.h"
#include "text/chat_format.h"
#include "text/json_text.h"

namespace dsa {
namespace {

MessagePart text(const std::string& content) { return {MessagePart::Kind::text, content, {}}; }

Message said(Role role, const std::string& content) { return {.role = role, .parts = {text(content)}}; }
Message result(const std::string& id, const std::string& content) {
  Message message = said(Role::tool, content);
  message.call_id = id;
  return message;
}
Message called(std::vector<ToolCall> calls, const std::string& content = "",
               const std::string& reasoning = "") {
  Message message{.role = Role::assistant, .reasoning = reasoning, .calls = std::move(calls)};
  if (!content.empty()) message.parts.push_back(text(content));
  return message;
}

constexpr std::span<const ImageSlot> kNoPictures;
constexpr TokenId kNothing = 256;  // a control token that means nothing within an answer

struct Family {
  const char* name;
  std::vector<std::string> controls;
  const char* chat_template;
};

const Family kK2{"kimi_linear",
                 {"[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>",
                  "<|im_middle|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
                  "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"},
                 "<|im_system|>system<|im_middle|>You are helpful.<|im_end|> <|im_user|> <|im_assistant|>"};
const std::vector<std::string> kGlmControls = {
    "[gMASK]",          "<sop>",           "<|system|>", "<|user|>",    "<|assistant|>", "<|observation|>",
    "<|endoftext|>",    "<think>",         "</think>",   "<tool_call>", "</tool_call>",  "<tool_response>",
    "</tool_response>", "<arg_key>",       "</arg_key>", "<arg_value>", "</arg_value>",  "<|begin_of_image|>",
    "<|image|>",        "<|end_of_image|>"};
const Family kGlm{"glm5_next", kGlmControls,
                  "[gMASK]<sop> Reasoning Effort: <|user|> <|assistant|> <|observation|> <think> "
                  "<tool_response> <arg_key>"};
const Family kGlm5{"glm_moe_dsa", kGlmControls,
                   "[gMASK]<sop> <|user|> <|assistant|> <|observation|> <think> <tool_response> <arg_key>"};
const Family kDeepseek{
    "deepseek_v32",
    {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>",
     "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
     "<｜tool▁call▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"},
    "<｜User｜> <｜Assistant｜> </think> <｜tool▁sep｜>"};
const Family kDsml{"deepseek_v32",
                   {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
                    "<think>", "</think>", "｜DSML｜"},
                   "<｜User｜> <｜Assistant｜> </think> <｜DSML｜function_calls> <function_results>"};
const Family kHarmony{"gpt_oss",
                      {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>",
                       "<|call|>", "<|endoftext|>"},
                      "<|start|> <|message|> <|channel|> <|end|> analysis commentary final"};
const std::vector<const Family*> kFamilies = {&kK2, &kGlm, &kGlm5, &kDeepseek, &kDsml, &kHarmony};

struct Chat {
  explicit Chat(const Family& family, bool with_template = false)
      : tokenizer(std::make_shared<test::ByteTokenizer>(family.controls)) {
    auto created = ChatFormat::create(family.name, tokenizer, with_template ? family.chat_template : "");
    REQUIRE_MESSAGE(created.is_ok(), created.status().message());
    format = created.value();
  }
  std::string spell(const std::vector<TokenId>& ids) const {
    std::string out;
    for (const TokenId id : ids)
      out += tokenizer->is_control(id) ? tokenizer->control_name(id) : tokenizer->bytes(id);
    return out;
  }
  std::string render(const std::vector<Message>& messages, ChatOptions options) const {
    options.date = "2025-01-02";
    const auto rendered = format->render(messages, {}, options);
    REQUIRE_MESSAGE(rendered.is_ok(), rendered.status().message());
    return spell(rendered.value().tokens);
  }
  // "reasoning:...|answer:...|call f [id]:...|DONE|cut|END|DROPPED"
  std::string hear(const std::string& answer, bool in_reasoning, std::span<const Tool> tools = {},
                   std::string* closing = nullptr) const {
    const auto reader = format->reader(in_reasoning, tools);
    std::string heard, channel;
    bool is_open = false;
    const auto add = [&](const std::string& what) { heard += (heard.empty() ? "" : "|") + what; };
    for (const TokenId id : tokenizer->encode_markup(answer).value()) {
      const AnswerReader::Piece piece = reader->push(id);
      if (piece.begins_call) {
        if (is_open) add("cut");
        is_open = true;
        channel = "call";
        add("call " + std::string(piece.name) + (piece.id.empty() ? "" : " " + std::string(piece.id)) + ":");
      }
      if (piece.is_text) {
        const std::string name = is_open && piece.channel == Channel::tool ? "call"
                                 : piece.channel == Channel::answer        ? "answer"
                                 : piece.channel == Channel::tool          ? "tool"
                                                                           : "reasoning";
        if (channel != name) add(name + ":");
        channel = name;
        heard += piece.text;
      }
      if (piece.ends_call) {
        CHECK(is_open);
        is_open = false;
        channel.clear();
        add("DONE");
      }
      if (piece.ends_turn) add("END");
      if (piece.is_dropped) add("DROPPED");
    }
    if (closing != nullptr) *closing = spell(reader->closing());
    return heard;
  }

  std::shared_ptr<test::ByteTokenizer> tokenizer;
  std::shared_ptr<const ChatFormat> format;
};

const std::vector<Tool>& tools() {
  static const std::vector<Tool> made =
      tools_from_json(
          R"([{"name": "add", "description": "Adds.", "strict": true, "parameters": {"type": "object",
        "properties": {"b": {"type": "integer", "description": "One\nmore"}, "a": {"type": "string", "enum": ["x", "y"]},
        "c": {"type": "array", "items": {"type": "number"}, "default": [1]}}, "required": ["b"]}}, {"name": "now"}])")
          .value();
  return made;
}
const std::vector<Message> kTalk = {said(Role::system, "Be short."), said(Role::user, "Hi"),
                                    said(Role::assistant, "Hello."), said(Role::user, "Again")};
const ToolCall kAdd{"c1", "add", R"({"b": 1, "a": "é\"", "c": [1,2.50]})"}, kNow{"c2", "now", "{}"};

TEST_SUITE("text/family_formats") {
  TEST_CASE("kimi_linear: K2 style") {
    const Chat chat(kK2);
    const std::string talk =
        "<|im_system|>system<|im_middle|>Be short.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>Hello.<|im_end|><|im_user|>user<|im_middle|>Again<|im_end|>";
    CHECK(chat.render(kTalk, {.ask = false}) == talk);
    CHECK(chat.render(kTalk, {}) == talk + "<|im_assistant|>assistant<|im_middle|>");
    CHECK(chat.render({kTalk[1]}, {.ask = false, .tools = tools()})
              .starts_with("<|im_system|>tool_declare<|im_middle|>[{\"type\":\"function\",\"function\":{"
                           "\"name\":\"add\",\"description\":"));
    CHECK(chat.render({called({{"functions.add:0", "add", "{}"}, {"", "now", "{}"}}, "Wait."),
                       result("functions.add:0", "3")},
                      {.ask = false}) ==
          "<|im_assistant|>assistant<|im_middle|>Wait.<|tool_calls_section_begin|><|tool_call_begin|>"
          "functions.add:0"
          "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_"
          "argument_begin|>{}"
          "<|tool_call_end|><|tool_calls_section_end|><|im_end|><|im_system|>tool<|im_middle|>## Return of "
          "functions.add:0\n"
          "3<|im_end|>");
    // A template that inserts a system message.
    const Chat with(kK2, true);
    CHECK(
        with.render({kTalk[1]}, {.ask = false}) ==
        "<|im_system|>system<|im_middle|>You are helpful.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>");
    CHECK(with.render(kTalk, {.ask = false}) == talk);
    CHECK(with.render({kTalk[1]}, {.ask = false, .begins = false}) ==
          "<|im_user|>user<|im_middle|>Hi<|im_end|>");

    CHECK(
        chat.hear(
            "Wait.<|tool_calls_section_begin|> <|tool_call_begin|>functions.a.b:12 "
            "<|tool_call_argument_begin|>"
            "{\"x\": 1}<|tool_call_end|><|tool_call_begin|>odd<|tool_call_argument_begin|>?<|tool_call_end|>"
            "<|tool_calls_section_end|><|im_end|>more",
            false) ==
        "answer:Wait.|tool: |call a.b functions.a.b:12:{\"x\": 1}|DONE|call odd odd:?|DONE|END");
    CHECK(chat.hear("a[EOS]", false) == "answer:a|END");
    Message thought = said(Role::assistant, "x");
    thought.reasoning = "hm";
    CHECK(chat.format->render({thought}, kNoPictures, {}).status().code() == Code::unsupported);
  }

  TEST_CASE("GLM-5") {
    const Chat chat(kGlm), plain(kGlm5), with(kGlm5, true);
    const std::string talk =
        "<|system|>Be short.<|user|>Hi<|assistant|><think></think>Hello.<|user|>Again<|assistant|><think>";
    CHECK(chat.render(kTalk, {}) == "[gMASK]<sop><|system|>Reasoning Effort: Max" + talk);
    CHECK(chat.render(kTalk, {.thinking = false}) == "[gMASK]<sop>" + talk + "</think>");
    CHECK(plain.render(kTalk, {}) == "[gMASK]<sop>" + talk);
    CHECK(with.render(kTalk, {}) == "[gMASK]<sop>" + talk);
    CHECK(chat.render({kTalk[1]}, {.begins = false}) == "<|user|>Hi<|assistant|><think>");
    CHECK(plain.render({kTalk[1]}, {.ask = false, .tools = tools()}) ==
          "[gMASK]<sop><|system|>\n# Tools\n\nYou may call one or more functions to assist with the user "
          "query.\n\nYou are "
          "provided with function signatures within <tools></tools> XML tags:\n<tools>\n{\"name\": \"add\", "
          "\"description\": "
          "\"Adds.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"integer\", "
          "\"description\": \"One\\nmore\"}, \"a\": {\"type\": \"string\", \"enum\": [\"x\", \"y\"]}, \"c\": "
          "{\"type\": "
          "\"array\", \"items\": {\"type\": \"number\"}, \"default\": [1]}}, \"required\": "
          "[\"b\"]}}\n{\"name\": \"now\"}\n"
          "</tools>\n\nFor each function call, output the function name and arguments within the following "
          "XML format:\n"
          "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</"
          "arg_value><arg_key>{arg-key-2}"
          "</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call><|user|>Hi");
    CHECK(chat.render({called({kAdd, kNow}, "Wait.", "Hm."), result("c2", "12:00"), result("c1", "3")},
                      {.thinking = false, .begins = false}) ==
          "<|assistant|><think>Hm.</think>Wait.<tool_call>add<arg_key>b</arg_key><arg_value>1</"
          "arg_value><arg_key>a</arg_key>"
          "<arg_value>é\"</arg_value><arg_key>c</arg_key><arg_value>[1, "
          "2.50]</arg_value></tool_call><tool_call>now"
          "</tool_call><|observation|><tool_response>3</tool_response><tool_response>12:00</tool_response>"
          "<|assistant|><think></think>");
    CHECK(
        chat.hear(
            "Hm.</think>It is<tool_call>add\n<arg_key>b</arg_key><arg_value>1</arg_value><arg_key>a</arg_key>"
            "<arg_value>2</arg_value><arg_key>z</arg_key><arg_value>[1, "
            "\"é\"]</arg_value><arg_key>w</arg_key>"
            "<arg_value>a \"b\"</arg_value></tool_call><tool_call>now</tool_call><|observation|>",
            true, tools()) ==
        "reasoning:Hm.|answer:It is|call add:{\"b\": 1, \"a\": \"2\", \"z\": [1, \"é\"], \"w\": \"a "
        "\\\"b\\\"\"}|DONE"
        "|call now:{}|DONE|END|DROPPED");
    for (const char* end : {"<|user|>", "<|endoftext|>", "<|observation|>"})
      CHECK(chat.hear(concat("a", end, "b"), false) == "answer:a|END|DROPPED");
    CHECK(chat.hear("a<tool_call>f<arg_key>k", false) == "answer:a|call f:");
    CHECK(chat.hear("<tool_call>f<arg_key>k<tool_call>g</tool_call>", false) == "call f:|cut|call g:{}|DONE");

    const std::vector<ImageSlot> slots = {{10, 10, 2}};
    Message shown = said(Role::user, "?");
    shown.parts.insert(shown.parts.begin(), MessagePart{.kind = MessagePart::Kind::image, .image = 0});
    const auto picture = chat.format->render({shown}, slots, {.ask = false, .begins = false});
    REQUIRE(picture.is_ok());
    CHECK(chat.spell(picture.value().tokens) ==
          "<|user|><|begin_of_image|><|image|><|image|><|end_of_image|>?");
    CHECK(picture.value().places[0].first == 2);
    shown.parts[0].image = 1;
    CHECK(chat.format->render({shown}, slots, {}).status().code() == Code::argument);
  }

  TEST_CASE("DeepSeek V3.1 and V3.2-Exp") {
    const Chat chat(kDeepseek, true);
    const std::string talk =
        "Be "
        "short.<｜User｜>Hi<｜Assistant｜></think>Hello.<｜end▁of▁sentence｜><｜User｜>Again<｜Assistant｜>";
    CHECK(chat.render(kTalk, {}) == "<｜begin▁of▁sentence｜>" + talk + "<think>");
    CHECK(chat.render(kTalk, {.thinking = false, .begins = false}) == talk + "</think>");
    const std::vector<Message> loop = {said(Role::user, "?"), called({kAdd, kNow}, "Wait.", "Hm."),
                                       result("c2", "12"), result("c1", "3")};
    CHECK(chat.render(loop, {.begins = false}) ==
          "<｜User｜>?<｜Assistant｜><think>Hm.</"
          "think>Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>" +
              kAdd.arguments +
              "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
              "｜tool▁calls▁end｜>"
              "<｜end▁of▁sentence｜><｜tool▁output▁begin｜>3<｜tool▁output▁end｜><｜tool▁output▁begin｜>12<"
              "｜tool▁output▁end｜>");
    CHECK(!chat.format->render(loop, kNoPictures, {}).value().in_reasoning);  // the answer goes on
    CHECK(chat.format->render(kTalk, kNoPictures, {}).value().in_reasoning);
    CHECK(chat.format->render(kTalk, {}, {.tools = tools()}).status().code() == Code::unsupported);
    CHECK(chat.render(kTalk, {.may_call = false, .tools = tools()}) == chat.render(kTalk, {}));
    CHECK(chat.hear("Hm.</think>Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": "
                    "1}<｜tool▁call▁end｜>"
                    "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
                    true) == "reasoning:Hm.|answer:Wait.|call add:{\"a\": 1}|DONE|END");
  }

  // The expected text is that of the vendor's encoder, by the example beside it.
  TEST_CASE("DeepSeek V3.2: tools as DSML") {
    for (const bool is_control : {true, false}) {
      Family family = kDsml;
      if (!is_control) family.controls.pop_back();
      const Chat chat(family);
      CHECK(chat.format->has_tools());
      const std::string declared =
          "\n\n## Tools\n\nYou have access to a set of tools you can use to answer the user's question.\n"
          "You can invoke functions by writing a \"<｜DSML｜function_calls>\" block like the following as "
          "part of your "
          "reply to the user:\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n"
          "<｜DSML｜parameter name=\"$PARAMETER_NAME\" "
          "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
          "...\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"$FUNCTION_NAME2\">\n...\n</｜DSML｜invoke>\n"
          "</｜DSML｜function_calls>\n\nString and scalar parameters should be specified as is without any "
          "escaping or "
          "quotes, while lists and objects should use JSON format. The \"string\" attribute should be set to "
          "\"true\" "
          "for string type parameters and \"false\" for other types (numbers, booleans, arrays, "
          "objects).\n\nIf the "
          "thinking_mode is enabled, then after function results you should strongly consider outputting a "
          "thinking "
          "block. Here is an example:\n\n<｜DSML｜function_calls>\n...\n</｜DSML｜function_calls>\n\n"
          "<function_results>\n...\n</function_results>\n\n<think>...thinking about results</think>\n\nHere "
          "are the "
          "functions available in JSONSchema format:\n<functions>\n"
          "{\"name\": \"add\", \"description\": \"Adds.\", \"strict\": true, \"parameters\": {\"type\": "
          "\"object\", "
          "\"properties\": {\"b\": {\"type\": \"integer\", \"description\": \"One\\nmore\"}, \"a\": "
          "{\"type\": "
          "\"string\", \"enum\": [\"x\", \"y\"]}, \"c\": {\"type\": \"array\", \"items\": {\"type\": "
          "\"number\"}, "
          "\"default\": [1]}}, \"required\": [\"b\"]}}\n{\"name\": \"now\"}\n</functions>\n";
      CHECK(chat.render(kTalk, {.tools = tools()}) ==
            "<｜begin▁of▁sentence｜>Be short." + declared +
                "<｜User｜>Hi<｜Assistant｜></"
                "think>Hello.<｜end▁of▁sentence｜><｜User｜>Again<｜Assistant｜><think>");
      CHECK(chat.render({kTalk[1]}, {.ask = false, .begins = false, .tools = tools()}) ==
            declared + "<｜User｜>Hi");
      CHECK(chat.render(kTalk, {.may_call = false, .tools = tools()}) == chat.render(kTalk, {}));

      const std::string calls =
          "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n"
          "<｜DSML｜parameter name=\"b\" string=\"false\">1</｜DSML｜parameter>\n"
          "<｜DSML｜parameter name=\"a\" string=\"true\">é\"</｜DSML｜parameter>\n"
          "<｜DSML｜parameter name=\"c\" string=\"false\">[1, 2.50]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
          "<｜DSML｜invoke "
          "name=\"now\">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>";
      const std::string results =
          "\n\n<function_results>\n<result>3</result>\n<result>12</result>\n</function_results>\n\n";
      std::vector<Message> loop = {said(Role::user, "?"), called({kAdd, kNow}, "Wait.", "Hm."),
                                   result("c2", "12"), result("c1", "3")};
      const std::string asked = "<｜User｜>?<｜Assistant｜><think>Hm.</think>Wait." + calls + results;
      CHECK(chat.render(loop, {.begins = false}) == asked + "<think>");
      CHECK(chat.render(loop, {.thinking = false, .begins = false}) == asked + "</think>");
      CHECK(chat.render(loop, {.ask = false, .begins = false}) == asked);
      CHECK(chat.format->render(loop, kNoPictures, {}).value().in_reasoning);
      Message answer = said(Role::assistant, "Noon.");
      answer.reasoning = "So.";
      loop.push_back(answer);
      CHECK(chat.render(loop, {.ask = false, .begins = false}) ==
            asked + "<think>So.</think>Noon.<｜end▁of▁sentence｜>");
      loop.push_back(said(Role::user, "!"));  // the reasoning of an earlier turn is gone
      CHECK(chat.render(loop, {.ask = false, .begins = false}) ==
            "<｜User｜>?<｜Assistant｜></think>Wait." + calls + results +
                "</think>Noon.<｜end▁of▁sentence｜><｜User｜>!");
      CHECK(chat.format->render({called({{"c", "f", "{"}})}, kNoPictures, {}).status().code() == Code::json);

      CHECK(chat.hear("Hm.</think>Wait." + calls, true) ==
            "reasoning:Hm.|answer:Wait.|call add:{\"b\": 1, \"a\": \"é\\\"\", \"c\": [1, 2.50]}|DONE|call "
            "now:{}|DONE|END");
      // What only looks like a tag, and line ends that no tag follows, are text.
      CHECK(chat.hear("a\n\n<b> <｜DSML｜function\n\n\n", false) == "answer:a\n\n<b> <｜DSML｜function\n");
      CHECK(chat.hear("a\n\n\n<｜DSML｜function_calls>\n</｜DSML｜function_calls>b<｜end▁of▁sentence｜>",
                      false) == "answer:a\nb|END");
      CHECK(chat.hear("a\n<｜end▁of▁sentence｜>", false) == "answer:a\n|END");
      const std::string head = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n";
      CHECK(chat.hear(head + "<｜DSML｜parameter name=\"k\" string=\"true\"><think> </｜DSML｜x> "
                             "\"\n</｜DSML｜parameter>\n"
                             "</｜DSML｜invoke>",
                      false) == "call f:{\"k\": \"<think> </｜DSML｜x> \\\"\\n\"}|DONE");
      CHECK(chat.hear(head + "<｜DSML｜parameter name=\"k\" string=\"true\">ab", false) ==
            "call f:{\"k\": \"ab");
      CHECK(chat.hear(head + "<｜DSML｜invoke name=\"g\">", false) == "call f:");
      std::string closing;
      chat.hear(head + "<｜DSML｜parameter name=\"k\" string=\"true\">a", false, {}, &closing);
      CHECK(closing ==
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>");
    }
  }

  TEST_CASE("DeepSeek V3.2: an answer reads the same however its tokens cut it") {
    const std::string answer =
        "Wait.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"b\" "
        "string=\"true\">é<</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
        "name=\"now\">\n\n</｜DSML｜invoke>"
        "\n</｜DSML｜function_calls>";
    const std::string expected = "Wait.+add{\"b\": \"é<\"}.+now{}.";
    for (size_t cut = 0; cut <= answer.size(); ++cut) {
      // Two long tokens, then bytes: what one token holds is more than one event.
      struct Cut : test::ByteTokenizer {
        using ByteTokenizer::ByteTokenizer;
        std::string_view bytes(TokenId id) const override {
          return id < 2 ? parts[id] : ByteTokenizer::bytes(id);
        }
        std::string_view parts[2];
      };
      auto tokenizer = std::make_shared<Cut>(kDsml.controls);
      tokenizer->parts[0] = std::string_view(answer).substr(0, cut);
      tokenizer->parts[1] = std::string_view(answer).substr(cut);
      const auto reader = ChatFormat::create("deepseek_v32", tokenizer).value()->reader(false, {});
      std::string heard;
      std::vector<TokenId> ids = {0, 1};
      for (int i = 0; i < 8; ++i) ids.push_back(kNothing);
      ids.push_back(tokenizer->control_id("<｜end▁of▁sentence｜>").value());
      for (const TokenId id : ids) {
        const AnswerReader::Piece piece = reader->push(id);
        if (piece.begins_call) heard += "+" + std::string(piece.name);
        heard += piece.text;
        if (piece.ends_call) heard += ".";
      }
      INFO("cut at ", cut);
      CHECK(heard == expected);
    }
  }

  TEST_CASE("gpt_oss: harmony") {
    const Chat chat(kHarmony);
    const std::string system =
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge "
        "cutoff: 2024-06\n"
        "Current date: 2025-01-02\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
        "Channel must be "
        "included for every message.";
    const std::string talk =
        "<|start|>developer<|message|># Instructions\n\nBe short.\n\n<|end|><|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello.<|end|><|start|>user<|message|>Again<|end|>";
    CHECK(chat.render(kTalk, {}) == system + "<|end|>" + talk + "<|start|>assistant");
    CHECK(chat.render(kTalk, {.thinking = false, .begins = false}) ==
          talk + "<|start|>assistant<|channel|>final<|message|>");
    CHECK(chat.render({kTalk[1]}, {.ask = false, .tools = tools()}) ==
          system +
              "\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>"
              "<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {\n\n// Adds.\n"
              "type add = (_: {\n// One\n// more\nb: number,\na?: \"x\" | \"y\",\nc?: number[], // default: "
              "[1]\n"
              "}) => any;\n\ntype now = () => any;\n\n} // namespace "
              "functions<|end|><|start|>user<|message|>Hi<|end|>");
    // Reasoning is kept while calls are being made, and gone once there is an answer.
    std::vector<Message> loop = {called({kNow}, "Wait.", "Hm."), result("c2", "12")};
    const std::string head = "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>";
    const std::string rest =
        "<|start|>assistant<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant<|channel|>"
        "commentary "
        "to=functions.now <|constrain|>json<|message|>{}<|call|><|start|>functions.now "
        "to=assistant<|channel|>commentary"
        "<|message|>12<|end|>";
    CHECK(chat.render(loop, {.ask = false, .begins = false}) == head + rest);
    loop.push_back(said(Role::assistant, "Noon."));
    CHECK(chat.render(loop, {.ask = false, .begins = false}) ==
          rest + "<|start|>assistant<|channel|>final<|message|>Noon.<|end|>");
    CHECK(chat.render({result("c1", "3")}, {.ask = false, .begins = false, .calls = {&kAdd, 1}}) ==
          "<|start|>functions.add to=assistant<|channel|>commentary<|message|>3<|end|>");
    CHECK(chat.format->render({result("c9", "3")}, kNoPictures, {}).status().code() == Code::argument);

    CHECK(chat.hear("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|"
                    "message|>Let me.<|end|>"
                    "<|start|>assistant<|channel|>commentary to=functions.add "
                    "<|constrain|>json<|message|>{\"b\": 1}<|call|>",
                    true) == "reasoning:Hm.|answer:Let me.|call add:{\"b\": 1}|DONE|END");
    CHECK(chat.hear(" to=functions.add<|channel|>commentary json<|message|>{}<|call|>", true) ==
          "call add:{}|DONE|END");
    CHECK(chat.hear("<|channel|>final<|message|>Yes<|return|>", true) == "answer:Yes|END|DROPPED");
    std::string closing;
    chat.hear("Yes<|return|>", false, {}, &closing);
    CHECK(closing == "<|end|>");
    chat.hear("<|channel|>commentary to=functions.f<|message|>{}<|call|>", true, {}, &closing);
    CHECK(closing.empty());
    CHECK(chat.hear("<|channel|>commentary "
                    "to=functions.f<|message|>{<|end|><|start|>assistant<|channel|>final<|message|>x",
                    true) == "call f:{|answer:x");
  }

  TEST_CASE("Kimi K3: declarations, calls and results") {
    const Family k3{"kimi_k3",
                    {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]"},
                    "<|open|> <|close|> <|sep|> <|end_of_msg|>"};
    const Chat chat(k3);
    const std::string declared = chat.render({}, {.ask = false, .tools = tools()});
    CHECK(
        declared.starts_with("<|open|>message role=\"system\" type=\"tool-declare\"<|sep|># Tools\nHere are "
                             "the available tools, described in "
                             "JSONSchema.\n\n```json\n[{\"function\":{\"description\":\"Adds.\",\"name\":"
                             "\"add\",\"parameters\":{\"properties\":"
                             "{\"a\":{\"enum\""));
    CHECK(declared.ends_with("\"type\":\"function\"}]\n```<|close|>message<|sep|><|end_of_msg|>"));
    CHECK(
        chat.render({}, {.ask = false, .begins = false, .tools = tools()}).find("## New Tools Available\n") !=
        std::string::npos);
    CHECK(chat.render({}, {.ask = false, .may_call = false, .tools = tools()})
              .ends_with("type=\"tool-choice\"<|sep|>The system is invoked with `tool_choice=none`.\nYou "
                         "MUST NOT call any "
                         "tools in the next message.<|close|>message<|sep|><|end_of_msg|>"));
    ToolCall broken{"c3", "f", "{"};
    CHECK(
        chat.render({called({kAdd, kNow, broken}, "", "Hm."), result("c2", "12"), result("c3", "?"),
                     result("c1", "3")},
                    {.ask = false}) ==
        "<|open|>message "
        "role=\"assistant\"<|sep|><|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>"
        "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|>"
        "<|open|>argument key=\"b\" type=\"number\"<|sep|>1<|close|>argument<|sep|>"
        "<|open|>argument key=\"a\" type=\"string\"<|sep|>é\"<|close|>argument<|sep|>"
        "<|open|>argument key=\"c\" type=\"array\"<|sep|>[1, "
        "2.50]<|close|>argument<|sep|><|close|>call<|sep|>"
        "<|open|>call tool=\"now\" index=\"2\"<|sep|><|close|>call<|sep|>"
        "<|open|>call tool=\"f\" index=\"3\"<|sep|><|open|>json "
        "type=\"object\"<|sep|>{<|close|>json<|sep|><|close|>call<|sep|>"
        "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"tool\" tool=\"add\" index=\"1\"<|sep|>3<|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"tool\" tool=\"now\" index=\"2\"<|sep|>12<|close|>message<|sep|><|end_of_msg|>"
        "<|open|>message role=\"tool\" tool=\"f\" index=\"3\"<|sep|>?<|close|>message<|sep|><|end_of_msg|>");
    const std::string call = "<|open|>call tool=\"a&quot;&amp;\" index=\"1\"<|sep|>";
    const std::string end = "<|close|>call<|sep|>";
    const auto argument = [](const std::string& key, const std::string& type, const std::string& value) {
      return "<|open|>argument key=\"" + key + "\" type=\"" + type + "\"<|sep|>" + value +
             "<|close|>argument<|sep|>";
    };
    CHECK(chat.hear("x<|close|>response<|sep|><|open|>tools<|sep|>" + call +
                        argument("s", "string", "a \"q\"\n") + " " + argument("n", "number", "-1.5") +
                        argument("o", "object", "{\"z\": null}") + end + call + end + call +
                        "<|open|>json type=\"object\"<|sep|>{\"k\": 1}<|close|>json<|sep|>" + end +
                        "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
                    false) ==
          "answer:x|call a\"&:{\"s\": \"a \\\"q\\\"\\n\", \"n\": -1.5, \"o\": {\"z\": null}}|DONE|call "
          "a\"&:{}|DONE"
          "|call a\"&:{\"k\": 1}|DONE|END");
    CHECK(chat.hear("<|open|>tools<|sep|>" + call + argument("s", "string", "x") + "<|close|>tools<|sep|>",
                    false) == "call a\"&:{\"s\": \"x\"");  // never closed
  }

  TEST_CASE("TOK-03: control tokens come from the formats, never from text, names, reasoning or tools") {
    for (const Family* family : kFamilies) {
      const Chat chat(*family, family == &kDeepseek);
      std::string hostile;
      for (const std::string& name : family->controls) hostile += name;
      const auto controls = [&](const std::string& content) {
        Message answer = said(Role::assistant, content);
        if (family != &kK2) answer.reasoning = content;
        answer.calls.push_back({"id", "f", "{\"k\": \"" + content + "\"}"});
        Message named = said(Role::user, content);
        named.name = content;
        std::vector<Tool> declared;
        if (chat.format->has_tools())
          declared = tools_from_json("[{\"name\": \"f\", \"description\": \"" + content + "\"}]").value();
        const auto rendered = chat.format->render(
            {said(Role::system, content), named, answer, result("id", content)}, {}, {.tools = declared});
        REQUIRE_MESSAGE(rendered.is_ok(), rendered.status().message());
        const auto& ids = rendered.value().tokens;
        return std::count_if(ids.begin(), ids.end(),
                             [&](TokenId id) { return chat.tokenizer->is_control(id); });
      };
      INFO(family->name);
      CHECK(controls(hostile) == controls("x"));
    }
  }

  TEST_CASE("TOK-05: what opens a conversation is written once") {
    for (const Family* family : kFamilies) {
      const Chat chat(*family, true);
      const std::string first = chat.render({kTalk[1]}, {.ask = false});
      const std::string later = chat.render({kTalk[1]}, {.ask = false, .begins = false});
      INFO(family->name);
      CHECK(first.size() > later.size());
      CHECK(first.ends_with(later));
      CHECK(chat.render({}, {.ask = false, .begins = false}).empty());
    }
  }

  TEST_CASE("TOK-07: each format names the tokens that end its turns") {
    const auto stops = [](const Family& family) {
      const Chat chat(family);
      return chat.spell(chat.format->stop_tokens());
    };
    CHECK(stops(kK2) == "<|im_end|>[EOS]");
    CHECK(stops(kGlm) == "<|endoftext|><|user|><|observation|>");
    CHECK(stops(kDeepseek) == "<｜end▁of▁sentence｜>");
    CHECK(stops(kHarmony) == "<|return|><|call|><|endoftext|>");
  }

  TEST_CASE("text between two marks is encoded in one piece") {
    const Chat chat(kGlm);
    chat.tokenizer->pieces.clear();
    REQUIRE(chat.format->render({{.role = Role::user, .parts = {text("one"), text("two")}}}, kNoPictures, {})
                .is_ok());
    CHECK(chat.tokenizer->pieces == std::vector<std::string>{"Reasoning Effort: Max", "onetwo"});
  }

  TEST_CASE("a run that ends anywhere can be completed, and the next turn read") {
    const std::vector<std::pair<const Family*, std::string>> answers = {
        {&kK2,
         "Wait.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
         "<|tool_call_end|><|tool_calls_section_end|>"},
        {&kGlm, "Hm.</think>Wait.<tool_call>f<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>"},
        {&kDeepseek,
         "Hm.</think>Wait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
         "<｜tool▁calls▁end｜>"},
        {&kDsml,
         "Hm.</think>Wait.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter "
         "name=\"k\" "
         "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
        {&kHarmony,
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."}};
    for (const auto& [family, answer] : answers) {
      const Chat chat(*family, family == &kDeepseek);
      const std::vector<TokenId> ids = chat.tokenizer->encode_markup(answer).value();
      for (size_t size = 0; size <= ids.size(); ++size) {
        const auto reader = chat.format->reader(family != &kK2, {});
        for (size_t i = 0; i < size; ++i) reader->push(ids[i]);
        for (const TokenId id : reader->closing()) {
          const AnswerReader::Piece piece = reader->push(id);
          CHECK(!piece.is_dropped);
        }
        INFO(family->name, ", ", size, " tokens");
        CHECK(reader->closing().empty());
      }
      // Nonsense is survived.
      const auto reader = chat.format->reader(true, tools());
      uint32_t random = 1;
      for (int i = 0; i < 20'000; ++i) {
        random = random * 1664525 + 1013904223;
        const AnswerReader::Piece piece =
            reader->push(TokenId(random >> 8) % (chat.tokenizer->vocab_size() + 3) - 1);
        if (piece.ends_turn) break;
      }
      CHECK(reader->closing().size() < 10);
    }
  }

  TEST_CASE("a template that we do not know is refused") {
    for (const Family* family : kFamilies) {
      const auto tokenizer = std::make_shared<test::ByteTokenizer>(family->controls);
      const auto status = [&](const std::string& chat_template) {
        return ChatFormat::create(family->name, tokenizer, chat_template).status();
      };
      INFO(family->name);
      CHECK(status("").is_ok());
      CHECK(status(family->chat_template).is_ok());
      CHECK(status("{{ messages }}").code() == Code::unsupported);
      CHECK(status(std::string(family->chat_template) + "<|im_start|>").code() == Code::unsupported);
      CHECK(status(std::string(family->chat_template) + "<|im_start|>").message().find("'<|im_start|>'") !=
            std::string::npos);
      for (const Family* other : kFamilies)
        if (std::string(other->chat_template) != family->chat_template &&
            other->controls != family->controls &&
            std::string(other->name) != family->name)  // V3.1 and V3.2 are told apart by their templates
          CHECK(status(other->chat_template).code() == Code::unsupported);
    }
  }

  TEST_CASE("a tokenizer without the tokens of its format is refused by name") {
    for (const Family* family : kFamilies)
      for (size_t i = 0; i < family->controls.size(); ++i) {
        std::vector<std::string> controls = family->controls;
        controls.erase(controls.begin() + std::ptrdiff_t(i));
        const auto created =
            ChatFormat::create(family->name, std::make_shared<test::ByteTokenizer>(controls));
        if (created.is_ok()) continue;
        CHECK(created.status().code() == Code::model);
        CHECK(created.status().message().find(family->controls[i]) != std::string::npos);
      }
    CHECK(ChatFormat::create("gpt_oss", std::make_shared<test::ByteTokenizer>(std::vector<std::string>()))
              .status()
              .code() == Code::model);
  }

  TEST_CASE("failures name the message") {
    for (const Family* family : kFamilies) {
      const Chat chat(*family, family == &kDeepseek);
      const Status status =
          chat.format->render({kTalk[1], said(Role::user, "a\xFF")}, kNoPictures, {}).status();
      CHECK(status.code() == Code::utf8);
      CHECK(status.message().find("message 1: ") == 0);
      MessagePart token{.kind = MessagePart::Kind::tokens, .tokens = {99'999}};
      CHECK(chat.format->render({{.role = Role::user, .parts = {token}}}, kNoPictures, {}).status().code() ==
            Code::argument);
      MessagePart picture{.kind = MessagePart::Kind::image, .image = 0};
      CHECK(!chat.format->render({{.role = Role::user, .parts = {picture}}}, kNoPictures, {}).is_ok());
    }
  }

  TEST_CASE("JSON text keeps its order") {
    const std::string text =
        R"( { "b" : [ 1 , { "x" : "a,\"}" } , [ ] ] , "a" : "é\u00e9\/\n" , "" : -1.50e3 } )";
    CHECK(json_respaced(text, ", ", ": ") == R"({"b": [1, {"x": "a,\"}"}, []], "a": "éé/\n", "": -1.50e3})");
    CHECK(json_respaced(text, ",", ":") == R"({"b":[1,{"x":"a,\"}"},[]],"a":"éé/\n","":-1.50e3})");
    const auto members = json_members(text);
    REQUIRE(members.size() == 3);
    CHECK(members[0].first == "b");
    CHECK(json_elements(members[0].second).size() == 3);
    CHECK(json_string(json_member(json_elements(members[0].second)[1], "x")) == "a,\"}");
    CHECK(json_string(members[1].second) == "éé/\n");
    CHECK(members[2].second == "-1.50e3");
    CHECK(json_member(text, "c").empty());
    CHECK(json_members("{}").empty());
    CHECK(json_elements("[ ]").empty());
  }
}

}  // namespace
}  // namespace dsa
