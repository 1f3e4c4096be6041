// kernels/mxfp4_linear/mxfp4_linear_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/mxfp4_linear/mxfp4_linear.h"

namespace dsa {
namespace {

// The sum over i of value(i) * W[o, i].
template <class Weight, class F>
double dot(const Mxfp4LinearArgs& a, const Mxfp4LinearGroup& group, int o, const F& value) {
  const uint8_t* blocks = group.blocks + size_t(o) * (a.in_dim / 2);
  const uint8_t* scales = group.scales + size_t(o) * (a.in_dim / kMxfp4Block);
  double sum = 0;
  for (int i = 0; i < a.in_dim; ++i) {
    const uint8_t code = i % 2 ? blocks[i / 2] >> 4 : blocks[i / 2] & 15;
    sum += value(i) * (Weight(e2m1_to_f32(code)) * Weight(e8m0_to_f32(scales[i / kMxfp4Block])));
  }
  return sum;
}

// x[i] as the fast route sees it: rounded to a multiple of s = max|x| / 255 over its block of 32.
double rounded(const float* x, int i) {
  const float* block = x + i / kMxfp4Block * kMxfp4Block;
  float largest = 0;
  for (int j = 0; j < kMxfp4Block; ++j) {
    if (!std::isfinite(block[j])) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(block[j]));
  }
  const float s = largest / kMxfp4ActivationMax;
  if (s < kMxfp4ScaleMin) return 0;
  return double(std::nearbyint(x[i] / s)) * s;
}

}  // namespace

void ref::mxfp4_linear(const Mxfp4LinearArgs& a, Queue&) {
  for (int g = 0; g < a.num_groups; ++g)
    for (int r = 0; r < a.groups[g].rows; ++r)
      for (int o = 0; o < a.out_dim; ++o) {
        const Mxfp4LinearGroup& group = a.groups[g];
        const float* x = a.x + (group.row_begin + r) * a.x_stride;
        // A weight of 2^127 * 2 or more is infinite in f32, but not in the factors of the fast route.
        group.y[r * a.y_stride + o] =
            float(a.route == Route::exact ? dot<float>(a, group, o, [&](int i) { return double(x[i]); })
                                          : dot<double>(a, group, o, [&](int i) { return rounded(x, i); }));
      }
}

}  // namespace dsa
