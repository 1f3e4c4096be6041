// kernels/expert_groups/expert_groups_ref.cc: plain loops, one thread.
#include "kernels/expert_groups/expert_groups.h"

namespace dsa {

void ref::expert_groups(const ExpertGroupsArgs& a, Queue&) {
  int n = 0;
  const auto put = [&](const ExpertMatrix& matrix, int begin, int rows, float* y) {
    if (a.mxfp4 != nullptr)
      a.mxfp4[n++] = {static_cast<const uint8_t*>(matrix.data), matrix.scales, begin, rows, y};
    else
      a.linear[n++] = {matrix.data, begin, rows, y, matrix.block_scales};
  };
  for (int e = 0; e < a.experts; ++e)
    for (int i = 0; i < a.num_products; ++i) {
      const ExpertMatrix& matrix = a.products[i].matrices[e];
      const int begin = a.offsets[e], rows = a.offsets[e + 1] - begin;
      if (rows > 0 && matrix.type == a.type) put(matrix, begin, rows, a.products[i].y + begin * a.y_stride);
    }
  while (n < a.num_groups) put({}, 0, 0, nullptr);
}

}  // namespace dsa
