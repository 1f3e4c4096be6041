// kernels/short_conv/short_conv_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/common/functions.h"
#include "kernels/short_conv/short_conv.h"

namespace dsa {

void ref::short_conv(const ShortConvArgs& a, Queue&) {
  const int history = a.width - 1;
  for (int i = 0; i < a.num_sequences; ++i) {
    const ShortConvSequence& sequence = a.sequences[i];
    // Input t of this step; the state holds inputs -history .. -1.
    const auto u = [&](int t, int c) {
      return t < 0 ? sequence.state[size_t(t + history) * a.channels + c]
                   : a.x[(int64_t(sequence.row_begin) + t) * a.x_stride + c];
    };

    for (int t = 0; t < sequence.rows; ++t)
      for (int c = 0; c < a.channels; ++c) {
        double y = 0;
        for (int j = 0; j < a.width; ++j)
          y += double(a.weight[size_t(c) * a.width + j]) * u(t - history + j, c);
        a.y[(int64_t(sequence.row_begin) + t) * a.y_stride + c] = float(y * sigmoid(y));
      }
    for (int j = 0; j < history; ++j)
      for (int c = 0; c < a.channels; ++c)
        sequence.next_state[size_t(j) * a.channels + c] = u(sequence.rows - history + j, c);
  }
}

}  // namespace dsa
