// kernels/fp8_expert_linear/fp8_expert_linear.cu: see common/fp8_products.cuh.
#include "kernels/common/fp8_products.cuh"
#include "kernels/fp8_expert_linear/fp8_expert_linear.h"

namespace dsa {
namespace {

__global__ void __launch_bounds__(kFp8Threads)
    fp8_expert_linear_kernel(const __grid_constant__ Fp8ExpertLinearArgs a) {
  begin_kernel();
  fp8_products(a, [&](const Fp8ExpertLinearGroup& group, int64_t o, int64_t k) {
    return e4m3_to_f32(group.weight[fp8_tile_offset(a.out_dim, o, k)]);
  });
}

}  // namespace

void cuda::fp8_expert_linear(const Fp8ExpertLinearArgs& a, Queue& queue) {
  launch(queue, dim3(unsigned(ceil_div(a.out_dim, kFp8Outputs)), unsigned(a.num_groups)), kFp8Threads, 0,
         fp8_expert_linear_kernel, a);
}

}  // namespace dsa
