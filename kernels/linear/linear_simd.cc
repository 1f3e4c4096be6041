// kernels/linear/linear_simd.cc: one group of dot_rows.h.
#include "kernels/common/dot_rows.h"
#include "kernels/linear/linear.h"

namespace dsa {
namespace DSA_ISA {

template <class T>
static void product(const LinearArgs& a, Queue& queue) {
  const auto group = [&](int) {
    return DotGroup<PlainWeights<T>>{a.x, {static_cast<const T*>(a.weight), a.in_dim}, a.y, a.rows};
  };
  dot_groups<PlainWeights<T>>(queue, 1, group, a.x_stride, a.y_stride, a.in_dim, a.out_dim,
                              a.in_dim * int64_t(sizeof(T)));
}

static void fp8_product(const LinearArgs& a, Queue& queue) {
  const auto group = [&](int) {
    return DotGroup<Fp8Weights>{
        a.x, {static_cast<const uint8_t*>(a.weight), a.weight_scales, a.in_dim}, a.y, a.rows};
  };
  dot_groups<Fp8Weights>(queue, 1, group, a.x_stride, a.y_stride, a.in_dim, a.out_dim, 0);
}

void linear(const LinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::bf16)
    product<bf16>(a, queue);
  else if (a.weight_type == DType::f8_e4m3)
    fp8_product(a, queue);
  else
    product<float>(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
