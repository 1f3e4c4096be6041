#include "backend/storage.h"

#include <algorithm>

namespace dsa {

Status Storage::write_all(std::span<const Write> writes, const GoOn& go_on) {
  constexpr size_t kPiece = size_t(16) << 20;
  uint64_t done = 0;
  for (const Write& w : writes)
    for (size_t at = 0; at < w.bytes; at += kPiece) {
      if (!go_on(done)) return Status::ok();
      const size_t bytes = std::min(kPiece, w.bytes - at);
      DSA_TRY(write(static_cast<char*>(w.to) + at, static_cast<const char*>(w.from) + at, bytes));
      done += bytes;
    }
  return Status::ok();
}

}  // namespace dsa
