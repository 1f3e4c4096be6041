// kernels/linear/linear_simd.cc: exact, one group of dot_rows.h; fast, the rows are rounded into the workspace, then
// int16_rows.h.
#include "kernels/linear/int16_rows.h"
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

static void fast(const LinearArgs& a, Queue& queue) {
  const Int16Rows x(a.workspace, a.rows, a.in_dim);
  queue.parallel_for(a.rows, [&](int64_t r) { x.round(r, a.x + r * a.x_stride, a.in_dim); });
  int16_rows({x, static_cast<const bf16*>(a.weight), a.y, a.y_stride, a.rows, a.in_dim, a.out_dim}, queue);
}

void linear(const LinearArgs& a, Queue& queue) {
  if (a.weight_type == DType::f8_e4m3)
    fp8_product(a, queue);
  else if (a.weight_type == DType::f32)
    product<float>(a, queue);
  else if (a.route == Route::exact)
    product<bf16>(a, queue);
  else
    fast(a, queue);
}

}  // namespace DSA_ISA
}  // namespace dsa
