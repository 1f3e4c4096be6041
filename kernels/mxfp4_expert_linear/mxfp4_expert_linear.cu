// kernels/mxfp4_expert_linear/mxfp4_expert_linear.cu: see common/fp8_products.cuh; weights are expanded into shared memory.
#include "kernels/common/fp8_products.cuh"
#include "kernels/mxfp4_expert_linear/mxfp4_expert_linear.h"

namespace dsa {
namespace {

__global__ void __launch_bounds__(kFp8Threads)
    mxfp4_expert_linear_kernel(const __grid_constant__ Mxfp4ExpertLinearArgs a) {
  begin_kernel();
  fp8_products(a, [&](const Mxfp4ExpertLinearGroup& group, int64_t o, int64_t k) {
    if (k >= a.in_dim) return 0.f;
    const uint8_t byte = group.blocks[(o * a.in_dim + k) / 2];
    const int shift = group.scales[(o * a.in_dim + k) / kMxfp4Block] - group.exponents[o];
    return e4m3_to_f32(f32_to_e4m3(ldexpf(e2m1_to_f32(k % 2 ? byte >> 4 : byte & 15), shift)));
  });
}

}  // namespace

void cuda::mxfp4_expert_linear(const Mxfp4ExpertLinearArgs& a, Queue& queue) {
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, kFp8Outputs)), unsigned(a.num_groups)), kFp8Threads, 0,
         mxfp4_expert_linear_kernel, a);
}

}  // namespace dsa
