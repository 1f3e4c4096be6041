// engine/operation.h: one long piece of work that somebody may wait for: it ends once, with a status.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/status.h"

namespace dsa {

class Operation {
 public:
  // `wake` tells who does the work that it was cancelled. What it captures is kept until the operation ends.
  explicit Operation(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Whether it ended in time; a negative timeout waits for ever.
  bool wait(int64_t timeout_ms) const {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return done_; };
    if (timeout_ms < 0) return changed_.wait(lock, done), true;
    return changed_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(timeout_ms, int64_t(1) << 40)),
                             done);
  }
  // After its end.
  const Status& status() const { return status_; }
  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void cancel() {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      if (done_ || cancelled_) return;
      cancelled_ = true;
      wake = wake_;
    }
    if (wake) wake();
  }
  bool is_cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  // The first end counts.
  void complete(Status status) noexcept {
    std::function<void()> wake;  // may own the last share of what waits for this call
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      done_ = true;
      status_ = std::move(status);
      wake.swap(wake_);
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::function<void()> wake_;
  bool done_ = false, cancelled_ = false;
  Status status_;
};

}  // namespace dsa
