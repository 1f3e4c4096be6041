// kernels/rope_2d/rope_2d_ref.cc: plain loops, f64 products, one thread.
#include <cmath>

#include "kernels/rope_2d/rope_2d.h"

namespace dsa {

void ref::rope_2d(const Rope2dArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h)
      for (int j = 0; j < a.dim / 2; ++j) {
        const bool halves = a.kind == Rope2dKind::halves;
        const int quarter = a.dim / 4;
        const float* turns = halves ? a.turns_of(j < quarter ? a.rows[t] : a.columns[t]) + j % quarter
                                    : a.turns_of(j % 2 == 0 ? a.columns[t] : a.rows[t]) + j / 2;
        const double cosine = turns[0], sine = turns[quarter];
        float* head = a.x + t * a.token_stride + h * a.head_stride;
        float &first = head[halves ? j : 2 * j], &second = head[halves ? j + a.dim / 2 : 2 * j + 1];
        const double x = first, y = second;
        first = float(x * cosine - y * sine);
        second = float(x * sine + y * cosine);
      }
}

void fill_rope_2d_turns(float* turns, int side, int dim, double theta) {
  const int quarter = dim / 4;
  for (int position = 0; position < side; ++position, turns += dim / 2)
    for (int i = 0; i < quarter; ++i) {
      const double angle = position * std::pow(theta, -4.0 * i / dim);
      turns[i] = float(std::cos(angle));
      turns[quarter + i] = float(std::sin(angle));
    }
}

}  // namespace dsa
