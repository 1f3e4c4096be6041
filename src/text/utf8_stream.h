// text/utf8_stream.h: bytes in, whole code points out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dsa {

// Position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// Holds back an unfinished code point until its bytes are there. Bytes that can never become one are U+FFFD as soon as
// that is certain, one for each maximal subpart, which is what Unicode recommends and Python's "replace" does.
class Utf8Stream {
 public:
  // Appends to `out` what became whole.
  void push(std::string_view bytes, std::string& out);
  // The end: what is left unfinished becomes one U+FFFD.
  void finish(std::string& out);

 private:
  std::string pending_;  // at most 3 bytes
};

}  // namespace dsa
