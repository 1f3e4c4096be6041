// kernels/rope_2d/rope_2d_ref.cc: plain loops, f64 products, one thread.
#include <cmath>

#include "kernels/rope_2d/rope_2d.h"

namespace dsa {

void ref::rope_2d(const Rope2dArgs& a, Queue&) {
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int h = 0; h < a.heads; ++h)
      for (int j = 0; j < a.dim / 2; ++j) {
        const float* turns = a.turns_of(j % 2 == 0 ? a.columns[t] : a.rows[t]) + j / 2;
        const double cosine = turns[0], sine = turns[a.dim / 4];
        float* pair = a.x + t * a.stride + h * a.dim + 2 * j;
        const double x = pair[0], y = pair[1];
        pair[0] = float(x * cosine - y * sine);
        pair[1] = float(x * sine + y * cosine);
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
