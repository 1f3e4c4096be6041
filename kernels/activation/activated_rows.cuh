// kernels/activation/activated_rows.cuh: rows of few_rows.cuh that are activation(gate, up, form).
#pragma once

#include "kernels/activation/activation.cuh"
#include "kernels/common/few_rows.cuh"

namespace dsa {

// Rows that lie behind each other in gate, in up, and where they are kept. All threads of the block share the work; each waits
// for the values of two octets at once.
template <class Product>
__device__ void keep_activated(uint4* kept, int in_dim, int rows, const ActivationForm& form,
                               const float* gate, const float* up) {
  constexpr int kThreads = kProductWarps * kWarp, kTogether = 2;
  const int octets = stretches_of<typename Product::Weights>(in_dim) * (Product::Weights::kStretch / 8);
  for (int first = threadIdx.x; first < rows * octets; first += kTogether * kThreads) {
    float value[kTogether][8] = {}, of_up[kTogether][8] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = first + i * kThreads, k = at % octets * 8;
      if (at >= rows * octets || k >= in_dim) continue;
      const int64_t begin = int64_t(at / octets) * in_dim;
      read_octet(gate + begin, k, value[i]);
      read_octet(up + begin, k, of_up[i]);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = first + i * kThreads;
      if (at >= rows * octets) continue;
      if (at % octets * 8 < in_dim) {
        if (form.kind == ActivationKind::situ) {
#pragma unroll
          for (int j = 0; j < 8; ++j) value[i][j] = situ(form, value[i][j], of_up[i][j]);
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) value[i][j] = swiglu(form, value[i][j], of_up[i][j]);
        }
      }
      Product::keep_octet(kept + at / octets * int64_t(Product::kept_bytes(in_dim) / sizeof(uint4)), in_dim,
                          at % octets, value[i]);
    }
  }
}

}  // namespace dsa
