// tests/golden/prompt_fixture.h: messages with pictures as a prompt, ready for the decoder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "golden/vision_fixture.h"
#include "text/chat_format.h"

namespace dsa::test {

struct Prompt {
  std::vector<int32_t> tokens;
  std::unique_ptr<VisionPass> pass;  // owns the rows
  std::vector<PlacedRows> placed;
};

// `read` finds the picture that chat JSON names.
Result<Prompt> make_prompt(LoadedModel& model, const ChatFormat& format, std::vector<Message> messages,
                           bool thinking, const std::function<Result<Picture>(const std::string&)>& read);

// Runs a prompt in steps of at most `step` tokens (0: the model's) and returns the logits after it.
Result<std::vector<float>> run_prompt(LoadedModel& model, SequenceState& sequence, const Prompt& prompt,
                                      int step = 0);

}  // namespace dsa::test
