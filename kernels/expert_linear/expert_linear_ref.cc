// kernels/expert_linear/expert_linear_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/expert_linear/expert_linear.h"

namespace dsa {
namespace {

template <class W>
void product(const ExpertLinearArgs& a, const ExpertLinearGroup& group) {
  for (int r = 0; r < group.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + (group.row_begin + r) * a.x_stride;
      const W* w = static_cast<const W*>(group.weight) + size_t(o) * a.in_dim;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i) dot += double(to_f32(w[i])) * x[i];
      group.y[r * a.y_stride + o] = float(dot);
    }
}

void fp8_product(const ExpertLinearArgs& a, const ExpertLinearGroup& group) {
  const auto* codes = static_cast<const uint8_t*>(group.weight);
  for (int r = 0; r < group.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + (group.row_begin + r) * a.x_stride;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i)
        dot += double(fp8_value(codes, group.weight_scales, a.in_dim, o, i)) * x[i];
      group.y[r * a.y_stride + o] = float(dot);
    }
}

}  // namespace

void ref::expert_linear(const ExpertLinearArgs& a, Queue&) {
  for (int g = 0; g < a.num_groups; ++g) {
    if (a.weight_type == DType::bf16)
      product<bf16>(a, a.groups[g]);
    else if (a.weight_type == DType::f8_e4m3)
      fp8_product(a, a.groups[g]);
    else
      product<float>(a, a.groups[g]);
  }
}

}  // namespace dsa
