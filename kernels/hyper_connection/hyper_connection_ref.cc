// kernels/hyper_connection/hyper_connection_ref.cc: plain loops, f64 values; tokens go to the threads.
#include <algorithm>

#include "kernels/common/functions.h"
#include "kernels/hyper_connection/hyper_connection.h"

namespace dsa {
namespace {

using Square = double[kHyperStreamsMax][kHyperStreamsMax];

void divide_rows(Square& c, int n, double eps) {
  for (int j = 0; j < n; ++j) {
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += c[j][k];
    for (int k = 0; k < n; ++k) c[j][k] /= sum + eps;
  }
}

void divide_columns(Square& c, int n, double eps) {
  for (int k = 0; k < n; ++k) {
    double sum = 0;
    for (int j = 0; j < n; ++j) sum += c[j][k];
    for (int j = 0; j < n; ++j) c[j][k] /= sum + eps;
  }
}

void softmax_rows(Square& c, int n, double eps) {
  for (int j = 0; j < n; ++j) {
    const double largest = *std::max_element(c[j], c[j] + n);
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += c[j][k] = std::exp(c[j][k] - largest);
    for (int k = 0; k < n; ++k) c[j][k] = c[j][k] / sum + eps;
  }
}

}  // namespace

void ref::hyper_mix(const HyperMixArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int n = a.streams;
    const float *x = a.x + t * n * a.dim, *logits = a.logits + t * (2 + n) * n;
    double squares = 0;
    for (int64_t i = 0; i < int64_t(n) * a.dim; ++i) squares += double(x[i]) * x[i];
    const double root = 1 / std::sqrt(squares / (double(n) * a.dim) + a.norm_eps);
    const auto m = [&](int i, int part) { return logits[i] * root * a.scale[part] + a.base[i]; };

    float* post = a.coefficients + t * (1 + n) * n;
    double pre[kHyperStreamsMax];
    for (int k = 0; k < n; ++k) pre[k] = sigmoid(m(k, 0)) + a.eps;
    for (int k = 0; k < n; ++k) post[k] = float(2 * sigmoid(m(n + k, 1)));

    Square c;
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) c[j][k] = m(2 * n + n * j + k, 2);
    softmax_rows(c, n, a.eps);
    divide_columns(c, n, a.eps);
    for (int i = 1; i < a.iterations; ++i) {
      divide_rows(c, n, a.eps);
      divide_columns(c, n, a.eps);
    }
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) post[n + n * j + k] = float(c[j][k]);

    for (int d = 0; d < a.dim; ++d) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += pre[k] * x[int64_t(k) * a.dim + d];
      a.y[t * a.dim + d] = float(sum);
    }
  });
}

void ref::hyper_add(const HyperAddArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    const int n = a.streams;
    const float *post = a.coefficients + t * (1 + n) * n, *c = post + n;
    for (int d = 0; d < a.dim; ++d) {
      double mixed[kHyperStreamsMax];
      float* x = a.x + t * n * a.dim + d;
      for (int k = 0; k < n; ++k) {
        mixed[k] = double(post[k]) * a.y[t * a.dim + d];
        for (int j = 0; j < n; ++j) mixed[k] += double(c[n * j + k]) * x[int64_t(j) * a.dim];
      }
      for (int k = 0; k < n; ++k) x[int64_t(k) * a.dim] = float(mixed[k]);
    }
  });
}

void ref::hyper_spread(const HyperSpreadArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    for (int k = 0; k < a.streams; ++k)
      std::copy(a.y + t * a.dim, a.y + (t + 1) * a.dim, a.x + (t * a.streams + k) * a.dim);
  });
}

void ref::hyper_mean(const HyperMeanArgs& a, Queue& queue) {
  queue.parallel_for(a.tokens, [&](int64_t t) {
    for (int d = 0; d < a.dim; ++d) {
      double sum = 0;
      for (int k = 0; k < a.streams; ++k) sum += a.x[(t * a.streams + k) * a.dim + d];
      a.y[t * a.dim + d] = float(sum / a.streams);
    }
  });
}

}  // namespace dsa
