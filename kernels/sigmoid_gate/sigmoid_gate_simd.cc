// kernels/sigmoid_gate/sigmoid_gate_simd.cc: blocks of values go to the threads.
#include "kernels/common/simd.h"
#include "kernels/sigmoid_gate/sigmoid_gate.h"

namespace dsa {

void DSA_ISA::sigmoid_gate(const SigmoidGateArgs& a, Queue& queue) {
  constexpr int64_t kBlock = 4096;  // values
  const int64_t count = a.rows * a.dim;
  queue.parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = block * kBlock + kBlock < count ? block * kBlock + kBlock : count;
    for_each_vector(block * kBlock, end, [&](int64_t i, size_t n) {
      store(mul(load(a.x + i, n), sigmoid(load(a.gate + i, n))), a.y + i, n);
    });
  });
}

}  // namespace dsa
