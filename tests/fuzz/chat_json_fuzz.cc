// A conversation in JSON.
#include "fuzz.h"
#include "text/chat_json.h"
#include "text/utf8_stream.h"

using dsa::fuzz::require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto messages = dsa::messages_from_json(dsa::fuzz::text(data, size));
  if (!messages.is_ok()) return dsa::fuzz::require_readable(messages.status()), 0;
  for (const dsa::Message& message : messages.value())
    for (const dsa::MessagePart& part : message.parts) {
      require(part.kind == dsa::MessagePart::Kind::text, "JSON makes ordinary text only");
      require(dsa::find_invalid_utf8(part.text) == std::string_view::npos, "text out of JSON is UTF-8");
    }
  return 0;
}
