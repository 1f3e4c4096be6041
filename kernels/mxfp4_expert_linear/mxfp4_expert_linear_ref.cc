// kernels/mxfp4_expert_linear/mxfp4_expert_linear_ref.cc: the references of both steps, one group after the other.
#include <vector>

#include "kernels/fp8_expert_linear/fp8_expert_linear.h"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"
#include "kernels/mxfp4_to_fp8/mxfp4_to_fp8.h"

namespace dsa {

void ref::mxfp4_expert_linear(const Mxfp4ExpertLinearArgs& a, Queue& queue) {
  std::vector<uint8_t> codes(size_t(fp8_tile_bytes(a.out_dim, a.in_dim)));
  for (int g = 0; g < a.num_groups; ++g) {
    const Mxfp4ExpertLinearGroup& from = a.groups[g];
    const Mxfp4ToFp8Group expand = {from.blocks, from.scales, from.exponents, codes.data(), from.range};
    const Fp8ExpertLinearGroup multiply = {codes.data(), from.exponents, from.range, from.y};
    ref::mxfp4_to_fp8({&expand, 1, a.in_dim, a.out_dim}, queue);
    ref::fp8_expert_linear({a.x, a.x_scales, &multiply, 1, a.rows, a.in_dim, a.out_dim, a.y_stride}, queue);
  }
}

}  // namespace dsa
