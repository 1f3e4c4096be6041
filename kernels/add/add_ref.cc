// kernels/add/add_ref.cc: one addition a value; blocks of values go to the threads.
#include <algorithm>

#include "kernels/add/add.h"

namespace dsa {

void ref::add(const AddArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 16384;  // values; 64 KiB of each operand
  queue.parallel_for((a.count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = std::min((block + 1) * kBlock, a.count);
    for (int64_t i = block * kBlock; i < end; ++i) a.y[i] = a.a[i] + a.b[i];
  });
}

}  // namespace dsa
