// kernels/fp8_expert_linear/fp8_expert_linear_ref.cc: plain loops, f64 sums, one thread.
#include <cmath>

#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

namespace dsa {

void ref::fp8_expert_linear(const Fp8ExpertLinearArgs& a, Queue&) {
  for (int g = 0; g < a.num_groups; ++g) {
    const Fp8ExpertLinearGroup& group = a.groups[g];
    for (int64_t r = group.range[0]; r < group.range[1]; ++r)
      for (int64_t o = 0; o < a.out_dim; ++o) {
        double sum = 0;
        for (int i = 0; i < a.in_dim; ++i)
          sum += double(e4m3_to_f32(group.weight[fp8_tile_offset(a.out_dim, o, i)])) *
                 e4m3_to_f32(a.x[fp8_tile_offset(a.rows, r, i)]);
        group.y[r * a.y_stride + o] = float(std::ldexp(sum * a.x_scales[r], group.exponents[o] - 127));
      }
  }
}

}  // namespace dsa
