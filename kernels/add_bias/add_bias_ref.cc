// kernels/add_bias/add_bias_ref.cc: plain loops; groups go to the threads, or rows if there is one group.
#include "kernels/add_bias/add_bias.h"

namespace dsa {
namespace {

template <class B>
void add_rows(const AddBiasArgs& a, int64_t group, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const B* bias = static_cast<const B*>(a.bias) + group * a.parts * a.dim;
    for (int i = 0; i < a.parts; ++i, bias += a.dim) {
      float* y = a.y + r * a.row_stride + i * a.part_stride;
      for (int d = 0; d < a.dim; ++d) y[d] += to_f32(bias[d]);
    }
  }
}

}  // namespace

void ref::add_bias(const AddBiasArgs& a, Queue& queue) {
  const auto add = a.bias_type == DType::bf16 ? add_rows<bf16> : add_rows<float>;
  if (a.offsets == nullptr)
    queue.parallel_for(a.rows, [&](int64_t r) { add(a, 0, r, r + 1); });
  else
    queue.parallel_for(a.groups, [&](int64_t g) { add(a, g, a.offsets[g], a.offsets[g + 1]); });
}

}  // namespace dsa
