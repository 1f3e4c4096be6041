// kernels/linears/linears_ref.cc: the operators one after the other.
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linears/linears.h"
#include "kernels/rms_norm/rms_norm.h"

namespace dsa {

void ref::linears(const LinearsArgs& a, Queue& queue) {
  for (int i = 0; i < a.num_products; ++i) {
    const LinearsArgs::Product& p = a.products[i];
    std::vector<float> in(size_t(a.rows) * p.in_dim), y(size_t(a.rows) * p.out_dim);
    for (int r = 0; r < a.rows; ++r) {
      const float* x = p.x + r * p.x_stride;
      float* row = &in[size_t(r) * p.in_dim];
      if (a.up)
        ref::activation({x, a.up + r * p.x_stride, row, 1, p.in_dim, a.form}, queue);
      else
        for (int j = 0; j < p.in_dim; ++j) row[j] = x[j];
    }
    if (a.norm) {
      ref::rms_norm({in.data(), a.norm, a.h, p.in_dim, p.in_dim, a.rows, p.in_dim, a.eps}, queue);
      in.assign(a.h, a.h + in.size());
    }
    ref::linear({in.data(), p.weight, p.weight_type, y.data(), p.in_dim, p.out_dim, a.rows, p.in_dim,
                 p.out_dim, p.weight_scales},
                queue);
    for (int r = 0; r < a.rows; ++r)
      for (int o = 0; o < p.out_dim; ++o)
        p.y[r * p.y_stride + o] =
            (p.addend ? p.addend[r * p.addend_stride + o] : 0) + y[size_t(r) * p.out_dim + o];
  }
}

}  // namespace dsa
