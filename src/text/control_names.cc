#include "text/control_names.h"

#include <algorithm>
#include <functional>

namespace dsa {

bool ControlNames::add(std::string_view name, TokenId id) {
  if (!ids_.emplace(name, id).second) return false;
  const auto at = std::lower_bound(lengths_.begin(), lengths_.end(), name.size(), std::greater<>());
  if (at == lengths_.end() || *at != name.size()) lengths_.insert(at, name.size());
  begins_[uint8_t(name[0])] = true;
  return true;
}

std::optional<TokenId> ControlNames::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional<TokenId>(found->second);
}

std::optional<ControlNames::Match> ControlNames::find_in(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[uint8_t(text[at])]) continue;
    for (const size_t size : lengths_)
      if (size <= text.size() - at)
        if (const auto found = ids_.find(text.substr(at, size)); found != ids_.end())
          return Match{at, size, found->second};
  }
  return std::nullopt;
}

}  // namespace dsa
