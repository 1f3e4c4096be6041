// kernels/kda/kda_ref.cc: the recurrence, f64, one thread. The columns of a state do not meet: each runs
// alone.
#include <cmath>
#include <vector>

#include "kernels/kda/kda.h"

namespace dsa {
namespace {

void recurrence(const KdaArgs& a) {
  std::vector<double> s(size_t(a.k_dim));  // one column of the state
  for (int i = 0; i < a.num_sequences; ++i)
    for (int h = 0; h < a.heads; ++h)
      for (int j = 0; j < a.v_dim; ++j) {
        const KdaSequence& sequence = a.sequences[i];
        const size_t column = size_t(h) * a.k_dim * a.v_dim + j;
        for (int d = 0; d < a.k_dim; ++d) s[d] = sequence.state[column + size_t(d) * a.v_dim];

        for (int64_t t = sequence.row_begin; t < sequence.row_begin + sequence.rows; ++t) {
          const float* q = a.q + t * a.q_stride + h * a.k_dim;
          const float* k = a.k + t * a.k_stride + h * a.k_dim;
          const float v = a.v[t * a.v_stride + h * a.v_dim + j];
          const float* g = a.g + (t * a.heads + h) * a.k_dim;
          const float beta = a.beta[t * a.heads + h];

          double remembered = 0, o = 0;
          for (int d = 0; d < a.k_dim; ++d) s[d] *= std::exp(double(g[d]));
          for (int d = 0; d < a.k_dim; ++d) remembered += s[d] * k[d];
          const double u = beta * (v - remembered);
          for (int d = 0; d < a.k_dim; ++d) s[d] += k[d] * u;
          for (int d = 0; d < a.k_dim; ++d) o += s[d] * q[d];
          a.o[(t * a.heads + h) * a.v_dim + j] = float(o);
        }

        for (int d = 0; d < a.k_dim; ++d) sequence.next_state[column + size_t(d) * a.v_dim] = float(s[d]);
      }
}

}  // namespace

void ref::kda_step(const KdaArgs& a, Queue&) { recurrence(a); }
void ref::kda_chunk(const KdaArgs& a, Queue&) { recurrence(a); }

}  // namespace dsa
