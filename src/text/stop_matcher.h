// text/stop_matcher.h: finds stop texts in a stream, across token borders, and lets none of their bytes through.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsa {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none is empty

  // Takes text, appends to `out` what can no longer be part of a stop text. Returns the index of the stop text that
  // was completed first (the longest of those that begin first, the lowest index among equals), or -1; after a match
  // everything from its first byte on is dropped and later pushes do nothing.
  int push(std::string_view text, std::string& out);
  // The end without a match: what was held back.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest suffix that may still become a stop text
  int matched_ = -1;
};

}  // namespace dsa
