#include "text/stop_matcher.h"

#include <algorithm>

namespace dsa {

// Each stop text is followed by its own Knuth-Morris-Pratt automaton, so a byte costs the same however texts
// repeat.
StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    std::vector<size_t> border(text.size(), 0);
    for (size_t i = 1, n = 0; i < text.size(); ++i) {
      while (n > 0 && text[n] != text[i]) n = border[n - 1];
      if (text[n] == text[i]) ++n;
      border[i] = n;
    }
    stops_.push_back({std::move(text), std::move(border), 0});
  }
}

int StopMatcher::push(std::string_view text, std::string& out) {
  if (matched_ >= 0) return matched_;
  for (size_t at = held_.size(), end = (held_ += text).size(); at < end; ++at) {
    const char c = held_[at];
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      while (stop.num_seen > 0 && stop.text[stop.num_seen] != c)
        stop.num_seen = stop.border[stop.num_seen - 1];
      if (stop.text[stop.num_seen] == c) ++stop.num_seen;
      if (stop.num_seen == stop.text.size() && stop.num_seen > longest) {
        longest = stop.num_seen;
        matched_ = int(i);
      }
    }
    if (matched_ >= 0) {
      out.append(held_, 0, at + 1 - longest);
      held_.clear();
      return matched_;
    }
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.num_seen);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return -1;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
  for (Stop& stop : stops_) stop.num_seen = 0;
}

}  // namespace dsa
