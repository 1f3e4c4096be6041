// text/stop_matcher.h: finds stop texts in a stream, across token borders, and lets none of their bytes through.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dsa {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none is empty

  // Takes text, appends to `out` what can no longer be part of a stop text. Returns the index of the stop text that
  // was completed first, or -1; of several that end at that byte the one that begins first, of equal texts the lowest
  // index. After a match everything from its first byte on is dropped, and later pushes do nothing but return it. How
  // the text is cut into pushes makes no difference.
  int push(std::string_view text, std::string& out);
  // The end without a match: what was held back.
  void finish(std::string& out);

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // longest proper prefix of text that ends at each byte
    size_t num_seen = 0;         // bytes of text that the stream ends with
  };

  std::vector<Stop> stops_;
  std::string held_;  // the longest suffix that may still become a stop text
  int matched_ = -1;
};

}  // namespace dsa
