// A tiktoken.model, a tokenizer_config.json for it, and a text: parted by 0xFF bytes, the last two of the input.
#include "promises.h"
#include "text/tiktoken_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = dsa::fuzz::text(data, size), hostile, config = "{}";
  if (const size_t at = input.rfind('\xFF'); at != std::string_view::npos) {
    hostile = input.substr(at + 1);
    input = input.substr(0, at);
  }
  if (const size_t at = input.rfind('\xFF'); at != std::string_view::npos) {
    config = input.substr(at + 1);
    input = input.substr(0, at);
  }
  const auto loaded = dsa::read_tiktoken(input, "tiktoken.model", config, "tokenizer_config.json");
  if (!loaded.is_ok()) return dsa::fuzz::require_readable(loaded.status()), 0;
  dsa::fuzz::require_tokenizer(*loaded.value(), hostile, false);
  return 0;
}
