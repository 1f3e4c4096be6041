// kernels/head_linear/head_linear_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/head_linear/head_linear.h"

namespace dsa {
namespace {

template <class W>
void product(const HeadLinearArgs& a, const W* weight) {
  for (int t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h) {
      const float* x = a.x + t * a.x_token_stride + h * a.x_head_stride;
      float* y = a.y + t * a.y_token_stride + h * a.y_head_stride;
      const W* w = weight + h * a.weight_head_stride;
      for (int o = 0; o < a.out_dim; ++o) {
        double dot = 0;
        for (int i = 0; i < a.in_dim; ++i) {
          const W value = a.transposed ? w[size_t(i) * a.out_dim + o] : w[size_t(o) * a.in_dim + i];
          dot += double(to_f32(value)) * x[i];
        }
        y[o] = float(dot);
      }
    }
}

}  // namespace

void ref::head_linear(const HeadLinearArgs& a, Queue&) {
  if (a.weight_type == DType::bf16)
    product(a, static_cast<const bf16*>(a.weight));
  else
    product(a, static_cast<const float*>(a.weight));
}

}  // namespace dsa
