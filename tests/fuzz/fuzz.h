// tests/fuzz/fuzz.h: what the fuzzers share. An input must never crash, hang or break a promise that we check.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dsa::fuzz {

inline std::string_view text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool condition, const char* promise) {
  if (condition) return;
  fprintf(stderr, "broken promise: %s\n", promise);
  abort();
}

// A failure has a sentence that can be shown: not empty, not endless, no control characters.
inline void require_readable(const Status& status) {
  require(!status.message().empty() && status.message().size() < 4096, "a message is a sentence");
  for (const char c : status.message()) require(uint8_t(c) >= 0x20, "a message has no control characters");
}

}  // namespace dsa::fuzz
