// tests/support/byte_level.h: tokenizer.json files with the 256 bytes as tokens.
#pragma once

#include <cstdio>
#include <string>

namespace dsa::test {

// `"\u0021": 33, ...`, as byte-level BPE spells bytes.
inline std::string byte_level_vocab() {
  std::string vocab;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    char member[32];
    std::snprintf(member, sizeof member, "%s\"\\u%04X\": %d", byte > 0 ? ", " : "",
                  unsigned(is_printable ? byte : next++), byte);
    vocab += member;
  }
  return vocab;
}

}  // namespace dsa::test
