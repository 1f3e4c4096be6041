// kernels/common/queue.cc: out of line, so that no copy built for a newer instruction set can take their place.
#include "kernels/common/queue.h"

namespace dsa {

Queue::~Queue() = default;

int SerialQueue::threads() const { return 1; }

void SerialQueue::run(int64_t n, Call call, const void* context) {
  for (int64_t i = 0; i < n; ++i) call(context, i);
}

}  // namespace dsa
