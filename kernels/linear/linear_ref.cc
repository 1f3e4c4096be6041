// kernels/linear/linear_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/linear/linear.h"

namespace dsa {
namespace {

template <class W>
void product(const LinearArgs& a, const W* weight) {
  for (int r = 0; r < a.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + r * a.x_stride;
      const W* w = weight + size_t(o) * a.in_dim;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i) dot += double(to_f32(w[i])) * x[i];
      a.y[r * a.y_stride + o] = float(dot);
    }
}

void fp8_product(const LinearArgs& a) {
  const auto* codes = static_cast<const uint8_t*>(a.weight);
  for (int r = 0; r < a.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + r * a.x_stride;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i)
        dot += double(fp8_value(codes, a.weight_scales, a.in_dim, o, i)) * x[i];
      a.y[r * a.y_stride + o] = float(dot);
    }
}

}  // namespace

void ref::linear(const LinearArgs& a, Queue&) {
  if (a.weight_type == DType::bf16)
    product(a, static_cast<const bf16*>(a.weight));
  else if (a.weight_type == DType::f8_e4m3)
    fp8_product(a);
  else
    product(a, static_cast<const float*>(a.weight));
}

}  // namespace dsa
