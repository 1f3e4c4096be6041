// kernels/hyper_connection/hyper_connection_simd.cc: the coefficients of a token are a few dozen scalars; the streams
// are read once by each kernel.
#include <cmath>

#include "kernels/common/simd.h"
#include "kernels/hyper_connection/hyper_connection.h"

namespace dsa {
namespace DSA_ISA {
namespace {

float logistic(float x) { return 1 / (1 + std::exp(-x)); }

// Rows of Z become a matrix whose rows and columns both sum to nearly 1.
template <int kN>
void balance(float* c, int streams, int iterations, float eps) {
  const int n = kN > 0 ? kN : streams;
  float sums[kHyperStreamsMax];
  const auto divide_rows = [&](float less, float more) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += c[n * j + k];
      const float factor = 1 / (sum + less);
      for (int k = 0; k < n; ++k) c[n * j + k] = c[n * j + k] * factor + more;
    }
  };
  const auto divide_columns = [&] {
    for (int k = 0; k < n; ++k) sums[k] = eps;
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) sums[k] += c[n * j + k];
    for (int k = 0; k < n; ++k) sums[k] = 1 / sums[k];
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) c[n * j + k] *= sums[k];
  };

  for (int j = 0; j < n; ++j) {
    float largest = c[n * j];
    for (int k = 1; k < n; ++k) largest = c[n * j + k] > largest ? c[n * j + k] : largest;
    for (int k = 0; k < n; ++k) c[n * j + k] = std::exp(c[n * j + k] - largest);
  }
  divide_rows(0, eps);
  divide_columns();
  for (int i = 1; i < iterations; ++i) {
    divide_rows(eps, 0);
    divide_columns();
  }
}

}  // namespace

void hyper_mix(const HyperMixArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int n = a.streams;
    const int64_t size = int64_t(n) * a.dim;
    const float *x = a.x + t * size, *logits = a.logits + t * (2 + n) * n;
    const float root = 1 / std::sqrt(dot(x, x, size) / float(size) + a.norm_eps);
    const auto m = [&](int i, int part) { return logits[i] * root * a.scale[part] + a.base[i]; };

    float *post = a.coefficients + t * (1 + n) * n, *c = post + n;
    float pre[kHyperStreamsMax];
    for (int k = 0; k < n; ++k) pre[k] = logistic(m(k, 0)) + a.eps;
    for (int k = 0; k < n; ++k) post[k] = 2 * logistic(m(n + k, 1));
    for (int i = 0; i < n * n; ++i) c[i] = m(2 * n + i, 2);
    if (n == 4)
      balance<4>(c, n, a.iterations, a.eps);
    else
      balance<0>(c, n, a.iterations, a.eps);

    for_each_vector(0, a.dim, [&](int64_t d, size_t count) {
      Vec sum = mul(set(pre[0]), load(x + d, count));
      for (int k = 1; k < n; ++k) sum = fma(set(pre[k]), load(x + int64_t(k) * a.dim + d, count), sum);
      store(sum, a.y + t * a.dim + d, count);
    });
  });
}

void hyper_add(const HyperAddArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int n = a.streams;
    const float *post = a.coefficients + t * (1 + n) * n, *c = post + n;
    float* x = a.x + t * n * a.dim;
    for_each_vector(0, a.dim, [&](int64_t d, size_t count) {
      const Vec y = load(a.y + t * a.dim + d, count);
      Vec old[kHyperStreamsMax];
      for (int j = 0; j < n; ++j) old[j] = load(x + int64_t(j) * a.dim + d, count);
      for (int k = 0; k < n; ++k) {
        Vec sum = mul(set(post[k]), y);
        for (int j = 0; j < n; ++j) sum = fma(set(c[n * j + k]), old[j], sum);
        store(sum, x + int64_t(k) * a.dim + d, count);
      }
    });
  });
}

}  // namespace DSA_ISA
}  // namespace dsa
