// tests/support/queues.h: queues that show whether an operator depends on who runs what, and when.
#pragma once

#include "kernels/common/queue.h"

namespace dsa::test {

// Claims to have many threads and runs everything on the caller, the last item first.
class BackwardQueue final : public Queue {
 public:
  explicit BackwardQueue(int threads = 16) : threads_(threads) {}
  int threads() const override { return threads_; }

 protected:
  void run(int64_t n, Call call, const void* context) override {
    for (int64_t i = n - 1; i >= 0; --i) call(context, i);
  }

 private:
  int threads_;
};

}  // namespace dsa::test
