// A tokenizer.json, and a text for it: the input is split at its last 0xFF byte.
#include "promises.h"
#include "text/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = dsa::fuzz::text(data, size);
  const size_t at = input.rfind('\xFF');
  const std::string_view hostile = at == std::string_view::npos ? std::string_view() : input.substr(at + 1);
  const auto loaded = dsa::read_tokenizer_json(input.substr(0, at), "tokenizer.json");
  if (!loaded.is_ok()) return dsa::fuzz::require_readable(loaded.status()), 0;
  dsa::fuzz::require_tokenizer(*loaded.value(), hostile, true);
  return 0;
}
