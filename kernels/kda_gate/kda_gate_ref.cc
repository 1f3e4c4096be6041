// kernels/kda_gate/kda_gate_ref.cc: plain loops, f64 sums, one thread.
#include "kernels/common/functions.h"
#include "kernels/kda_gate/kda_gate.h"

namespace dsa {
namespace {

void normalise(float* x, int dim, double factor) {
  double squares = 0;
  for (int d = 0; d < dim; ++d) squares += double(x[d]) * x[d];
  factor /= std::sqrt(squares + 1e-6);  // added to the sum, not to the mean
  for (int d = 0; d < dim; ++d) x[d] = float(x[d] * factor);
}

}  // namespace

void ref::kda_gate(const KdaGateArgs& a, Queue&) {
  for (int64_t r = 0; r < a.rows; ++r)
    for (int h = 0; h < a.heads; ++h) {
      normalise(a.q + r * a.q_stride + h * a.dim, a.dim, 1 / std::sqrt(double(a.dim)));
      normalise(a.k + r * a.k_stride + h * a.dim, a.dim, 1);

      float* g = a.g + (r * a.heads + h) * a.dim;
      const double rate = std::exp(double(a.a_log[h]));
      for (int d = 0; d < a.dim; ++d) {
        const double z = double(g[d]) + a.dt_bias[h * a.dim + d];
        g[d] = float(a.lower_bound == 0 ? -rate * softplus(z) : a.lower_bound * sigmoid(rate * z));
      }

      float& beta = a.beta[r * a.heads + h];
      beta = float(sigmoid(beta));
    }
}

}  // namespace dsa
