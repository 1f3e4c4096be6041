// kernels/expert_linear/expert_linear_simd.cc: the groups of dot_rows.h.
#include "kernels/common/dot_rows.h"
#include "kernels/expert_linear/expert_linear.h"

namespace dsa {
namespace DSA_ISA {

template <class T>
static void product(const ExpertLinearArgs& a, Queue& queue) {
  const auto group = [&](int g) {
    const ExpertLinearGroup& e = a.groups[g];
    return DotGroup<PlainWeights<T>>{
        a.x + e.row_begin * a.x_stride, {static_cast<const T*>(e.weight), a.in_dim}, e.y, e.rows};
  };
  dot_groups<PlainWeights<T>>(queue, a.num_groups, group, a.x_stride, a.y_stride, a.in_dim, a.out_dim,
                              a.in_dim * int64_t(sizeof(T)));
}

static void fp8_product(const ExpertLinearArgs& a, Queue& queue) {
  const auto group = [&](int g) {
    const ExpertLinearGroup& e = a.groups[g];
    return DotGroup<Fp8Weights>{a.x + e.row_begin * a.x_stride,
                                {static_cast<const uint8_t*>(e.weight), e.weight_scales, a.in_dim},
                                e.y,
                                e.rows};
  };
  dot_groups<Fp8Weights>(queue, a.num_groups, group, a.x_stride, a.y_stride, a.in_dim, a.out_dim, 0);
}

void expert_linear(const ExpertLinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product<bf16>(a, queue);
  else if (a.weight_type == DType::f8_e4m3)
    fp8_product(a, queue);
  else
    product<float>(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
