// kernels/add/add.cu: one thread a value.
#include "kernels/add/add.h"
#include "kernels/common/cuda.cuh"

namespace dsa {

void cuda::add(const AddArgs& a, Queue& queue) {
  each(queue, a.count, [a] __device__(int64_t i) { a.y[i] = a.a[i] + a.b[i]; });
}

}  // namespace dsa
