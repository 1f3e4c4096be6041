#include "golden/prompt_fixture.h"

#include <algorithm>

namespace dsa::test {

Result<Prompt> make_prompt(LoadedModel& model, const ChatFormat& format, std::vector<Message> messages,
                           bool thinking, const std::function<Result<Picture>(const std::string&)>& read) {
  std::vector<Picture> pictures;
  for (Message& message : messages)
    for (MessagePart& part : message.parts) {
      if (part.kind != MessagePart::Kind::image) continue;
      DSA_ASSIGN(Picture picture, read(part.text));
      part.image = int(pictures.size());
      pictures.push_back(std::move(picture));
    }
  if (!pictures.empty() && model.decoder->vision() == nullptr)
    return error(Code::unsupported, "the model reads text only");
  std::vector<ImageSlot> slots;
  std::vector<const Picture*> shown;
  for (const Picture& picture : pictures) {
    const int tokens = model.decoder->vision()->shape(picture.width(), picture.height()).tokens;
    slots.push_back({picture.width(), picture.height(), tokens});
    shown.push_back(&picture);
  }
  DSA_ASSIGN(RenderedChat chat, format.render(messages, slots, {.thinking = thinking}));
  Prompt prompt;
  prompt.tokens = std::move(chat.tokens);
  if (shown.empty()) return prompt;
  DSA_ASSIGN(prompt.pass, run_vision(model, shown));
  const Tensor features = prompt.pass->features();
  int row = 0;
  for (size_t i = 0; i < chat.places.size(); ++i) {  // in the order of the messages, as the pictures are
    prompt.placed.push_back(
        {int(chat.places[i].first), slots[i].tokens, features.f32() + row * features.stride[0]});
    row += slots[i].tokens;
  }
  return prompt;
}

Result<std::vector<float>> run_prompt(LoadedModel& model, SequenceState& sequence, const Prompt& prompt,
                                      int step) {
  if (step == 0) step = model.decoder->max_step_tokens();
  std::vector<float> logits;
  for (size_t at = 0; at < prompt.tokens.size();) {
    const int count = std::min(int(prompt.tokens.size() - at), step);
    DSA_ASSIGN(logits, append(model, sequence, prompt.tokens.data() + at, count, prompt.placed));
    at += size_t(count);
  }
  return logits;
}

}  // namespace dsa::test
