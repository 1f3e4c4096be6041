// kernels/short_conv/short_conv_simd.cc: blocks of channels of a sequence go to the threads.
#include "kernels/common/simd.h"
#include "kernels/short_conv/short_conv.h"

namespace dsa {

void DSA_ISA::short_conv(const ShortConvArgs& a, Queue& queue) {
  constexpr int kMaxWidth = 8;
  constexpr int64_t kBlock = 256;  // channels
  const int64_t blocks = (a.channels + kBlock - 1) / kBlock;
  const int width = a.width, history = a.width - 1;
  queue.parallel_for(a.num_sequences * blocks, [&](int64_t i) {
    const ShortConvSequence& sequence = a.sequences[i / blocks];
    const int64_t begin = i % blocks * kBlock;
    const int64_t end = begin + kBlock < a.channels ? begin + kBlock : a.channels;
    const float* x = a.x + int64_t(sequence.row_begin) * a.x_stride;
    // Input t of this step; the state holds inputs -history .. -1.
    const auto u = [&](int64_t t) {
      return t < 0 ? sequence.state + (t + history) * a.channels : x + t * a.x_stride;
    };

    float taps[kMaxWidth][kBlock];  // the weights of this block, tap by tap
    for (int64_t c = begin; c < end; ++c)
      for (int j = 0; j < width; ++j) taps[j][c - begin] = a.weight[c * width + j];

    for (int64_t t = 0; t < sequence.rows; ++t) {
      const float* inputs[kMaxWidth];
      for (int j = 0; j < width; ++j) inputs[j] = u(t - history + j);
      float* y = a.y + (sequence.row_begin + t) * a.y_stride;
      for_each_vector(begin, end, [&](int64_t c, size_t n) {
        Vec sum = zero();
        for (int j = 0; j < width; ++j) sum = fma(load(taps[j] + c - begin, n), load(inputs[j] + c, n), sum);
        store(mul(sum, sigmoid(sum)), y + c, n);
      });
    }
    for (int64_t j = 0; j < history; ++j) {
      const float* last = u(sequence.rows - history + j);
      float* next = sequence.next_state + j * a.channels;
      for_each_vector(begin, end, [&](int64_t c, size_t n) { store(load(last + c, n), next + c, n); });
    }
  });
}

}  // namespace dsa
