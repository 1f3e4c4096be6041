// kernels/hadamard/hadamard_ref.cc: butterflies; rows go to the threads.
#include <cmath>

#include "kernels/hadamard/hadamard.h"

namespace dsa {

void ref::hadamard(const HadamardArgs& a, Queue& queue) {
  const float factor = float(1 / std::sqrt(double(a.dim)));
  queue.parallel_for(a.rows, [&](int64_t r) {
    float* x = a.x + r * a.dim;
    for (int span = 1; span < a.dim; span *= 2)
      for (int block = 0; block < a.dim; block += 2 * span)
        for (int i = block; i < block + span; ++i) {
          const float sum = x[i] + x[i + span], difference = x[i] - x[i + span];
          x[i] = sum, x[i + span] = difference;
        }
    for (int i = 0; i < a.dim; ++i) x[i] *= factor;
  });
}

}  // namespace dsa
