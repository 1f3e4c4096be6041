#include "text/chat_json.h"

#include <doctest/doctest.h>

namespace dsa {
namespace {

bool fails(const std::string& json, Code code, const std::string& path) {
  const Status status = messages_from_json(json).status();
  INFO(json, " gave ", status.message());
  CHECK(status.code() == code);
  CHECK(status.message().find(path) != std::string::npos);
  return status.code() == code;
}

TEST_SUITE("text/chat_json") {
  TEST_CASE("both widespread forms are read") {
    const std::string list = R"([
      {"role": "system", "content": "Be short."},
      {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "<|open|>"}], "name": "Ann"},
      {"role": "assistant", "content": "", "tool_calls": null},
      {"content": "4", "role": "tool", "tool_call_id": "x", "name": "add"}])";
    for (const std::string& json :
         {list, R"({"model": "m", "temperature": 1, "tools": [], "messages": )" + list + "}"}) {
      const auto read = messages_from_json(json);
      REQUIRE_MESSAGE(read.is_ok(), read.status().message());
      const std::vector<Message>& messages = read.value();
      REQUIRE(messages.size() == 4);
      CHECK(messages[0].role == Role::system);
      CHECK(messages[0].parts[0].text == "Be short.");
      CHECK(messages[1].parts.size() == 2);
      CHECK(messages[1].parts[1].kind == MessagePart::Kind::text);
      CHECK(messages[1].parts[1].text == "<|open|>");
      CHECK(messages[1].name == "Ann");
      CHECK(messages[2].role == Role::assistant);
      CHECK(messages[3].role == Role::tool);
    }
    CHECK(messages_from_json("[]").value().empty());
  }

  TEST_CASE("a picture is a name that the host binds") {
    const auto read = messages_from_json(R"([{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "a.png", "detail": "high"}}, {"type": "text", "text": "?"}]}])");
    REQUIRE_MESSAGE(read.is_ok(), read.status().message());
    const std::vector<MessagePart>& parts = read.value()[0].parts;
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].kind == MessagePart::Kind::image);
    CHECK(parts[0].text == "a.png");
    CHECK(parts[0].image == -1);
    CHECK(parts[1].kind == MessagePart::Kind::text);
    const auto with = [](const std::string& image) {
      return R"([{"role": "user", "content": [{"type": "image_url")" + image + "}]}]";
    };
    fails(with(""), Code::json, "messages[0].content[0].image_url is not an object");
    fails(with(R"(, "image_url": "a.png")"), Code::json, "image_url is not an object");
    fails(with(R"(, "image_url": {})"), Code::json, "image_url.url is not a string");
    fails(with(R"(, "image_url": {"url": 3})"), Code::json, "image_url.url is not a string");
    fails(with(R"(, "image_url": {"url": ""})"), Code::json, "image_url.url is not a name");
  }

  TEST_CASE("what we do not read is named") {
    fails(R"([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}])", Code::unsupported,
          "messages[0].content[0] has type 'input_audio'");
    fails(R"([{"role": "developer", "content": "x"}])", Code::unsupported, "messages[0].role is 'developer'");
    fails(R"([{"role": "assistant", "content": "x", "function_call": {}}])", Code::unsupported,
          "'function_call'");
    fails(R"({"messages": [], "tools": [{"name": "f"}]})", Code::unsupported, "'tools'");
    fails(R"({"messages": [], "tool_choice": "required"})", Code::unsupported, "'tool_choice'");
    fails(R"({"messages": [], "tools": [{"type": "web_search"}]})", Code::unsupported, "tools[0].type");
  }

  TEST_CASE("calls of tools, their results, reasoning and declarations") {
    const auto read = chat_from_json(R"({"tool_choice": "auto", "tools": [
        {"type": "function", "function": {"name": "add", "parameters": {"b": 1, "a": [ ]}}}, {"name": "sub"}],
      "messages": [{"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{\"b\": 1}"}},
        {"function": {"name": "sub", "arguments": {"b": [1, "é"]}}}]},
      {"role": "tool", "tool_call_id": "x", "content": "4"}]})");
    REQUIRE_MESSAGE(read.is_ok(), read.status().message());
    const std::vector<Tool>& tools = read.value().tools;
    REQUIRE(tools.size() == 2);
    CHECK(tools[0].json == R"({"type":"function","function":{"name":"add","parameters":{"b":1,"a":[]}}})");
    CHECK(tools[1].json == R"({"type":"function","function":{"name":"sub"}})");
    const Message& answer = read.value().messages[0];
    CHECK(answer.reasoning == "Hm.");
    REQUIRE(answer.calls.size() == 2);
    CHECK(answer.calls[0].id == "x");
    CHECK(answer.calls[0].name == "add");
    CHECK(answer.calls[0].arguments == R"({"b": 1})");
    CHECK(answer.calls[1].arguments == R"({"b": [1, "é"]})");
    CHECK(read.value().messages[1].call_id == "x");
  }

  TEST_CASE("wrong shapes are named by their path") {
    const auto with_call = [](const std::string& call) {
      return R"([{"role": "assistant", "tool_calls": [)" + call + "]}]";
    };
    fails(with_call("1"), Code::json, "messages[0].tool_calls[0] is not an object");
    fails(with_call("{}"), Code::json, "tool_calls[0].function is not an object");
    fails(with_call(R"({"function": {}})"), Code::json, "tool_calls[0].function.name");
    fails(with_call(R"({"function": {"name": "f"}})"), Code::json, "arguments is missing");
    fails(with_call(R"({"function": {"name": "f", "arguments": 3}})"), Code::json, "arguments is not");
    fails(with_call(R"({"id": 3, "function": {"name": "f", "arguments": "{}"}})"), Code::json,
          "tool_calls[0].id");
    fails(with_call(R"({"type": "x", "function": {"name": "f", "arguments": "{}"}})"), Code::unsupported,
          "type");
    fails(R"([{"role": "assistant", "tool_calls": {}}])", Code::json, "tool_calls is not a list");
    fails(R"([{"role": "user", "content": "x", "reasoning_content": "y"}])", Code::json,
          "no message of the assistant");
    fails(R"([{"role": "tool", "content": "x", "tool_call_id": 3}])", Code::json, "messages[0].tool_call_id");
    fails(R"({"messages": [], "tools": 3})", Code::json, "tools is not a list");
    fails(R"({"messages": [], "tools": [3]})", Code::json, "tools[0] is not an object");
    fails(R"({"messages": [], "tools": [{}]})", Code::json, "tools[0].name");
    fails(R"({"messages": [], "tools": [{"function": 3}]})", Code::json, "tools[0].function");
    fails(R"({"messages": [], "tools": [{"name": "a b"}]})", Code::json, "'a b'");
    fails(R"({"messages": [], "tools": [{"name": "f", "parameters": 3}]})", Code::json,
          "tools[0].parameters");
    fails(R"({"messages": [], "tools": [{"name": "f", "description": 3}]})", Code::json,
          "tools[0].description");
    fails(R"({"messages": [], "tools": [{"name": "f"}, {"function": {"name": "f"}}]})", Code::argument,
          "tools[0] and tools[1]");
    fails("3", Code::json, "messages is not a list");
    fails("{}", Code::json, "messages is missing");
    fails(R"({"messages": {}})", Code::json, "messages is not a list");
    fails("[3]", Code::json, "messages[0] is not an object");
    fails(R"([{"role": "user", "content": "x"}, {"content": "x"}])", Code::json,
          "messages[1].role is missing");
    fails(R"([{"role": 3, "content": "x"}])", Code::json, "messages[0].role");
    fails(R"([{"role": "user"}])", Code::json, "messages[0].content is missing");
    fails(R"([{"role": "user", "content": 3}])", Code::json, "messages[0].content is not");
    fails(R"([{"role": "user", "content": null}])", Code::json, "messages[0].content is missing");
    fails(R"([{"role": "user", "content": ["x"]}])", Code::json, "messages[0].content[0]");
    fails(R"([{"role": "user", "content": [{"text": "x"}]}])", Code::json, "messages[0].content[0].type");
    fails(R"([{"role": "user", "content": [{"type": "text"}]}])", Code::json, "messages[0].content[0].text");
    fails(R"([{"role": "user", "content": "x", "name": 3}])", Code::json, "messages[0].name");
    fails(R"([{"role": "user", "content": "x", "content": "y"}])", Code::json, "'content' comes twice");
    fails("[", Code::json, "at byte 1");
  }
}

}  // namespace
}  // namespace dsa
