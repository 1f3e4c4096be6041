// kernels/linear/linear_ref.cc: plain loops, f64 sums, one thread.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/linear/linear.h"

namespace dsa {
namespace {

template <class W>
void product(const LinearArgs& a, const W* weight) {
  for (int r = 0; r < a.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + r * a.x_stride;
      const W* w = weight + size_t(o) * a.in_dim;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i) dot += double(to_f32(w[i])) * x[i];
      a.y[r * a.y_stride + o] = float(dot);
    }
}

void fp8_product(const LinearArgs& a) {
  const auto* codes = static_cast<const uint8_t*>(a.weight);
  for (int r = 0; r < a.rows; ++r)
    for (int o = 0; o < a.out_dim; ++o) {
      const float* x = a.x + r * a.x_stride;
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i)
        dot += double(fp8_value(codes, a.weight_scales, a.in_dim, o, i)) * x[i];
      a.y[r * a.y_stride + o] = float(dot);
    }
}

// The largest magnitude; NaN if a value is not finite.
template <class T>
float largest_of(const T* values, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (!std::isfinite(to_f32(values[i]))) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(to_f32(values[i])));
  }
  return largest;
}

// The activations as the fast route sees them: multiples of s = max|x| / 16383 over each block.
void round_row(const float* x, int n, double* out) {
  for (int begin = 0; begin < n; begin += kLinearBlock) {
    const int end = std::min(begin + kLinearBlock, n);
    const float s = largest_of(x + begin, end - begin) / 16383;
    for (int i = begin; i < end; ++i) out[i] = s < kLinearScaleMin ? 0 : double(std::nearbyint(x[i] / s)) * s;
  }
}

// The weights, multiples of t = 2^(e - 11) over each run.
void round_row(const bf16* w, int n, double* out) {
  for (int begin = 0; begin < n; begin += kLinearRun) {
    const int end = std::min(begin + kLinearRun, n);
    const float largest = largest_of(w + begin, end - begin);
    const double t = largest >= 0x1p-115f ? std::ldexp(1.0, std::ilogb(largest) - 11) : largest;
    for (int i = begin; i < end; ++i) out[i] = largest < 0x1p-115f ? 0 : std::nearbyint(to_f32(w[i]) / t) * t;
  }
}

void fast_product(const LinearArgs& a) {
  std::vector<double> x(size_t(a.rows) * a.in_dim), w(size_t(a.in_dim));
  for (int r = 0; r < a.rows; ++r) round_row(a.x + r * a.x_stride, a.in_dim, x.data() + size_t(r) * a.in_dim);
  for (int o = 0; o < a.out_dim; ++o) {
    round_row(static_cast<const bf16*>(a.weight) + size_t(o) * a.in_dim, a.in_dim, w.data());
    for (int r = 0; r < a.rows; ++r) {
      double dot = 0;
      for (int i = 0; i < a.in_dim; ++i) dot += w[size_t(i)] * x[size_t(r) * a.in_dim + i];
      a.y[r * a.y_stride + o] = float(dot);
    }
  }
}

}  // namespace

void ref::linear(const LinearArgs& a, Queue&) {
  if (a.weight_type == DType::f8_e4m3)
    fp8_product(a);
  else if (a.weight_type == DType::f32)
    product(a, static_cast<const float*>(a.weight));
  else if (a.route == Route::exact)
    product(a, static_cast<const bf16*>(a.weight));
  else
    fast_product(a);
}

}  // namespace dsa
