// kernels/common/kda_tile.cuh: a part of a KDA state in registers, and one token of the recurrence on it: what kda and
// kda_decode share.
//
// A warp owns 16 columns; lane 4 r + c holds columns 4 c .. 4 c + 3 of kRows rows from row kRows r on. With
// u = beta (v - S^T k) the output is o = (S + k u^T)^T q = S^T q + (k . q) u, so that both products with the decayed state
// are summed in one go.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kKdaColumns = 16, kKdaWarps = 8, kKdaThreads = kKdaWarps * kWarp;

// Query, key and decay of a token in shared memory; four banks between the rows of different lanes.
template <int kRows>
struct KdaVectors {
  static constexpr int kStride = kRows + 4;
  float4 q[8 * kStride / 4], k[8 * kStride / 4], decay[8 * kStride / 4];

  __device__ void set(int d, float query, float key, float decays) {
    const int at = d / kRows * kStride + d % kRows;
    reinterpret_cast<float*>(q)[at] = query;
    reinterpret_cast<float*>(k)[at] = key;
    reinterpret_cast<float*>(decay)[at] = decays;
  }
};

template <int kRows>
class KdaTile {
 public:
  // The columns of this warp in head h; blockIdx.x counts blocks of columns.
  __device__ KdaTile(int h, int k_dim, int v_dim)
      : v_dim_(v_dim),
        d_begin_(int(threadIdx.x) % kWarp / 4 * kRows),
        j_(int(blockIdx.x * blockDim.x + threadIdx.x) / kWarp * kKdaColumns + int(threadIdx.x) % 4 * 4),
        rows_(max(0, min(kRows, k_dim - d_begin_))),
        columns_(max(0, min(4, v_dim - j_))),
        whole_(v_dim % kKdaColumns == 0 && columns_ == 4),
        corner_((int64_t(h) * k_dim + d_begin_) * v_dim + j_) {}

  __device__ void read(const float* state) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float* at = state + corner_ + int64_t(i) * v_dim_;
      if (whole_) {
        const float4 row = i < rows_ ? __ldcs(reinterpret_cast<const float4*>(at)) : float4{0, 0, 0, 0};
        s_[i][0] = row.x, s_[i][1] = row.y, s_[i][2] = row.z, s_[i][3] = row.w;
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) s_[i][c] = i < rows_ && c < columns_ ? at[c] : 0;
      }
    }
  }
  __device__ void write(float* state) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float* at = state + corner_ + int64_t(i) * v_dim_;
      if (whole_) {
        if (i < rows_) __stcs(reinterpret_cast<float4*>(at), float4{s_[i][0], s_[i][1], s_[i][2], s_[i][3]});
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (i < rows_ && c < columns_) at[c] = s_[i][c];
      }
    }
  }

  // One token: v of the head in, o of the columns of this lane out, the same in all lanes of these columns.
  __device__ void step(const KdaVectors<kRows>& vectors, const float* v, float beta, float (&o)[4]) {
    const int at = int(threadIdx.x) % kWarp / 4 * KdaVectors<kRows>::kStride / 4;
    float remembered[4] = {}, read[4] = {}, both = 0;
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 q4 = vectors.q[at + i / 4], k4 = vectors.k[at + i / 4], decay4 = vectors.decay[at + i / 4];
      const float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w},
                  decay[4] = {decay4.x, decay4.y, decay4.z, decay4.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        both += k[n] * q[n];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s_[i + n][c] *= decay[n];
          remembered[c] += s_[i + n][c] * k[n];
          read[c] += s_[i + n][c] * q[n];
        }
      }
    }
    both = row_sum(both);
    float u[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      u[c] = beta * ((c < columns_ ? v[j_ + c] : 0) - row_sum(remembered[c]));
      o[c] = row_sum(read[c]) + both * u[c];
    }
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 k4 = vectors.k[at + i / 4];
      const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) s_[i + n][c] += k[n] * u[c];
    }
  }

  // Values of the columns of this lane into a row of all columns.
  __device__ void put(const float (&values)[4], float* row) const {
    if (threadIdx.x % kWarp >= 4) return;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < columns_) row[j_ + c] = values[c];
  }
  __device__ int first_column() const { return j_; }
  __device__ int columns() const { return columns_; }

 private:
  // The sum over the lanes that hold the same columns.
  __device__ static float row_sum(float x) {
    for (int lanes = 4; lanes < kWarp; lanes *= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
    return x;
  }

  const int v_dim_, d_begin_, j_, rows_, columns_;
  const bool whole_;  // the same for all lanes of a warp
  const int64_t corner_;
  float s_[kRows][4];
};

}  // namespace dsa
