// kernels/expert_up/expert_up_ref.cc: two products for each pair of a token and an expert.
#include <vector>

#include "kernels/expert_up/expert_up.h"
#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {

void ref::expert_up(const ExpertUpArgs& a, Queue& queue) {
  std::vector<Mxfp4LinearGroup> groups;
  for (int t = 0; t < a.tokens; ++t)
    for (int slot = 0; slot < a.top_k; ++slot) {
      const int64_t pair = int64_t(t) * a.top_k + slot;
      const auto put = [&](const ExpertMatrix& m, float* y) {
        groups.push_back({static_cast<const uint8_t*>(m.data), m.scales, t, 1, y + pair * a.out_dim});
      };
      put(a.gates[a.expert_ids[pair]], a.gate);
      put(a.ups[a.expert_ids[pair]], a.up);
    }
  ref::mxfp4_linear({a.x, groups.data(), int(groups.size()), nullptr, a.x_stride, a.out_dim, a.tokens,
                     a.in_dim, a.out_dim, a.route, 1},
                    queue);
}

}  // namespace dsa
