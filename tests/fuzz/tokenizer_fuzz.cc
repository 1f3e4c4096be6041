// A tokenizer.model, and a text for it: the input is split at its last 0xFF byte.
#include <string>

#include "fuzz.h"
#include "text/kimi_k3_format.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8_stream.h"

using dsa::fuzz::require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = dsa::fuzz::text(data, size);
  const size_t at = input.rfind('\xFF');
  const std::string_view model = input.substr(0, at);
  const std::string_view hostile = at == std::string_view::npos ? std::string_view() : input.substr(at + 1);
  const auto loaded = dsa::SentencePieceTokenizer::from_bytes(model, "tokenizer.model");
  if (!loaded.is_ok()) return dsa::fuzz::require_readable(loaded.status()), 0;
  const dsa::Tokenizer& tokenizer = *loaded.value();

  for (const std::string& text :
       {std::string("The fox\n  <|open|> ▁ \0 🦊 12", 29), std::string(hostile)}) {
    const auto ids = tokenizer.encode(text);
    require(ids.is_ok() == (dsa::find_invalid_utf8(text) == std::string_view::npos),
            "text is encoded if it is UTF-8");
    if (!ids.is_ok()) continue;
    std::string decoded;
    for (const dsa::TokenId id : ids.value()) {
      require(!tokenizer.is_control(id), "text makes no control token");
      decoded += tokenizer.bytes(id);
    }
    require(decoded == text, "text comes back byte for byte");
    require(tokenizer.encode_markup(text).is_ok(), "markup is encoded as well");
  }

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
