// A conversation in JSON.
#include "fuzz.h"
#include "text/chat_json.h"
#include "text/utf8_stream.h"

using dsa::fuzz::require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto chat = dsa::chat_from_json(dsa::fuzz::text(data, size));
  if (!chat.is_ok()) return dsa::fuzz::require_readable(chat.status()), 0;
  const auto is_utf8 = [](const std::string& text) {
    return dsa::find_invalid_utf8(text) == std::string_view::npos;
  };
  for (const dsa::Message& message : chat.value().messages) {
    for (const dsa::MessagePart& part : message.parts) {
      require(part.kind == dsa::MessagePart::Kind::text || part.kind == dsa::MessagePart::Kind::image,
              "JSON makes ordinary text and pictures only");
      require(is_utf8(part.text), "text out of JSON is UTF-8");
    }
    require(is_utf8(message.reasoning), "reasoning is UTF-8");
    for (const dsa::ToolCall& call : message.calls)
      require(is_utf8(call.id) && is_utf8(call.name) && is_utf8(call.arguments), "calls are UTF-8");
  }
  for (const dsa::Tool& tool : chat.value().tools) {
    const auto again = dsa::tools_from_json("[" + tool.json + "]");
    require(again.is_ok() && again.value()[0].json == tool.json, "a tool is read as it was written");
    require(!tool.function().empty(), "a tool is a function");
    tool.parameter_type("a");
  }
  return 0;
}
