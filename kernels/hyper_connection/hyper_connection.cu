// kernels/hyper_connection/hyper_connection.cu: one block a token, one thread a channel, or an entry of the mix.
#include "kernels/common/cuda.cuh"
#include "kernels/hyper_connection/hyper_connection.h"

namespace dsa {
namespace {

constexpr int kEntriesMax = kHyperStreamsMax * kHyperStreamsMax;

// The sum of n entries of c, `step` apart.
__device__ float sum_of(const float* c, int n, int step) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += c[i * step];
  return sum;
}

// Entry (j, k) of the mix belongs to thread n j + k; every thread of the block calls this.
__device__ void balance(float* c, int n, int iterations, float eps) {
  const int i = threadIdx.x, j = i / n, k = i % n;
  const bool mine = i < n * n;
  float value = 0;
  if (mine) {  // softmax of a row
    float largest = -INFINITY, total = 0;
    for (int other = 0; other < n; ++other) largest = fmaxf(largest, c[j * n + other]);
    for (int other = 0; other < n; ++other) total += expf(c[j * n + other] - largest);
    value = expf(c[i] - largest) / total + eps;
  }
  for (int pass = 0; pass < 2 * iterations; ++pass) {
    __syncthreads();
    if (mine) c[i] = value;
    __syncthreads();
    // Columns first: the softmax has taken the first turn of the rows.
    if (mine && pass > 0) value /= (pass % 2 ? sum_of(c + k, n, n) : sum_of(c + j * n, n, 1)) + eps;
  }
  __syncthreads();
  if (mine) c[i] = value;
  __syncthreads();
}

}  // namespace

void cuda::hyper_mix(const HyperMixArgs& a, Queue& queue) {
  const int threads = threads_for(a.dim < kEntriesMax ? kEntriesMax : a.dim);
  each_block(queue, a.tokens, threads, [a] __device__(int64_t t) {
    __shared__ float pre[kHyperStreamsMax], c[kEntriesMax];
    const int n = a.streams;
    const float *x = a.x + t * n * a.dim, *logits = a.logits + t * (2 + n) * n;
    float squares = 0;
    for (int i = threadIdx.x; i < n * a.dim; i += blockDim.x) squares += x[i] * x[i];
    const float root = 1 / sqrtf(block_sum(squares) / (float(n) * a.dim) + a.norm_eps);
    const auto m = [&](int i, int part) { return logits[i] * root * a.scale[part] + a.base[i]; };

    float* post = a.coefficients + t * (1 + n) * n;
    const int i = threadIdx.x;
    if (i < n) pre[i] = sigmoid(m(i, 0)) + a.eps;
    if (i < n) post[i] = 2 * sigmoid(m(n + i, 1));
    if (i < n * n) c[i] = m(2 * n + i, 2);
    __syncthreads();
    balance(c, n, a.iterations, a.eps);
    if (i < n * n) post[n + i] = c[i];

    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += pre[k] * x[int64_t(k) * a.dim + d];
      a.y[t * a.dim + d] = sum;
    }
  });
}

void cuda::hyper_add(const HyperAddArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    const int n = a.streams;
    const float *post = a.coefficients + t * (1 + n) * n, *c = post + n;
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      float* x = a.x + t * n * a.dim + d;
      float old[kHyperStreamsMax];
#pragma unroll
      for (int j = 0; j < kHyperStreamsMax; ++j) old[j] = j < n ? x[int64_t(j) * a.dim] : 0;
      for (int k = 0; k < n; ++k) {
        float mixed = post[k] * a.y[t * a.dim + d];
#pragma unroll
        for (int j = 0; j < kHyperStreamsMax; ++j) mixed += j < n ? c[n * j + k] * old[j] : 0;
        x[int64_t(k) * a.dim] = mixed;
      }
    }
  });
}

void cuda::hyper_spread(const HyperSpreadArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x)
      for (int k = 0; k < a.streams; ++k) a.x[(t * a.streams + k) * a.dim + d] = a.y[t * a.dim + d];
  });
}

void cuda::hyper_mean(const HyperMeanArgs& a, Queue& queue) {
  each_block(queue, a.tokens, threads_for(a.dim), [a] __device__(int64_t t) {
    for (int d = threadIdx.x; d < a.dim; d += blockDim.x) {
      float sum = 0;
      for (int k = 0; k < a.streams; ++k) sum += a.x[(t * a.streams + k) * a.dim + d];
      a.y[t * a.dim + d] = sum / a.streams;
    }
  });
}

}  // namespace dsa
