// text/chat_json.h: conversations in the JSON that most programs write.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat_format.h"

namespace dsa {

// A list of {"role": ..., "content": "..." or [{"type": "text", "text": "..."}, ...]}, or an object whose "messages" is
// that list. Members that would change the prompt and that we do not read, and parts that are not text, are
// Code::unsupported; a wrong shape is Code::json; both name the path, such as messages[2].content[0].text.
Result<std::vector<Message>> messages_from_json(std::string_view text);

}  // namespace dsa
