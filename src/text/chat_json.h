// text/chat_json.h: conversations in the JSON that most programs write.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"

namespace dsa {

struct ChatJson {
  std::vector<Message> messages;
  std::vector<Tool> tools;
};

// A list of {"role": ..., "content": "..." or [{"type": "text", "text": "..."}, ...]}, or an object whose "messages" is
// that list and whose "tools" are what tools_from_json() reads. A part {"type": "image_url", "image_url": {"url": NAME}}
// is a picture that the host binds to the name. Answers may hold "reasoning_content" and "tool_calls", results of tools
// "tool_call_id". Members that would change the prompt and that we do not read, and other parts, are
// Code::unsupported; a wrong shape is Code::json; both name the path, such as messages[2].content[0].text.
Result<ChatJson> chat_from_json(std::string_view text);
// The messages of a conversation without tools.
Result<std::vector<Message>> messages_from_json(std::string_view text);

}  // namespace dsa
