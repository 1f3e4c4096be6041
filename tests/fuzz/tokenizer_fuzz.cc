// A tokenizer.model, and a text for it: the input is split at its last 0xFF byte.
#include "promises.h"
#include "text/kimi_k3_format.h"
#include "text/sentencepiece_tokenizer.h"

using dsa::fuzz::require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = dsa::fuzz::text(data, size);
  const size_t at = input.rfind('\xFF');
  const std::string_view model = input.substr(0, at);
  const std::string_view hostile = at == std::string_view::npos ? std::string_view() : input.substr(at + 1);
  const auto loaded = dsa::SentencePieceTokenizer::from_bytes(model, "tokenizer.model");
  if (!loaded.is_ok()) return dsa::fuzz::require_readable(loaded.status()), 0;
  dsa::fuzz::require_tokenizer(*loaded.value(), hostile, false);

  // The model's own text as an answer: whatever it says, its message can be completed.
  const auto format = dsa::KimiK3Format::create(loaded.value());
  if (!format.is_ok()) return 0;
  const auto reader = format.value()->reader(true);
  for (const char c : hostile) reader->push(uint8_t(c));
  const auto closing = reader->closing();
  for (size_t i = 0; i < closing.size(); ++i)
    require(reader->push(closing[i]).ends_turn == (i + 1 == closing.size()), "a closing ends the message");
  return 0;
}
