// kernels/common/kda_tile.cuh: the state of a KDA head in the registers of a block, and one token of the recurrence on it:
// what kda and kda_decode share.
//
// A warp owns kRows rows and reads them whole: lane c holds columns 4 c .. 4 c + 3 of each. With u = beta (v - S^T k) the
// output is o = (S + k u^T)^T q = S^T q + (k . q) u, so that both products with the decayed state are summed in one go.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr int kKdaWarps = 8, kKdaThreads = kKdaWarps * kWarp, kKdaColumns = 4 * kWarp;

// What the warps of a block share: query, key and decay of a token, zero behind the last row, and their parts of sums.
template <int kRows>
struct KdaShared {
  float q[kKdaWarps * kRows], k[kKdaWarps * kRows], decay[kKdaWarps * kRows];
  float4 remembered[kKdaWarps][kWarp], read[kKdaWarps][kWarp];
};

template <int kRows>
class KdaTile {
 public:
  // kKdaColumns columns of head h; blockIdx.x counts them.
  __device__ KdaTile(int h, int k_dim, int v_dim)
      : k_dim_(k_dim),
        v_dim_(v_dim),
        row_(int(threadIdx.x) / kWarp * kRows),
        column_(int(blockIdx.x) * kKdaColumns + int(threadIdx.x) % kWarp * 4),
        head_(int64_t(h) * k_dim * v_dim) {}

  // All loads at once: rows and columns that do not exist are those of others, and count for nothing.
  __device__ void read(const float* state) {
    if (v_dim_ % 4 == 0) {
      const float* at = state + head_ + min(column_, v_dim_ - 4);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 row =
            __ldcs(reinterpret_cast<const float4*>(at + int64_t(min(row_ + i, k_dim_ - 1)) * v_dim_));
        s_[i][0] = row.x, s_[i][1] = row.y, s_[i][2] = row.z, s_[i][3] = row.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          s_[i][c] =
              state[head_ + int64_t(min(row_ + i, k_dim_ - 1)) * v_dim_ + min(column_ + c, v_dim_ - 1)];
    }
  }
  __device__ void write(float* state) const {
    float* at = state + head_ + column_;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      float* row = at + int64_t(row_ + i) * v_dim_;
      if (row_ + i >= k_dim_) break;
      if (v_dim_ % 4 == 0) {
        if (exists(0)) __stcs(reinterpret_cast<float4*>(row), float4{s_[i][0], s_[i][1], s_[i][2], s_[i][3]});
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (exists(c)) row[c] = s_[i][c];
      }
    }
  }

  // One token: v of the head in, o of the columns of this lane out, the same in all warps. Every thread of the block calls
  // this; it meets once.
  __device__ void step(KdaShared<kRows>& shared, const float* v, float beta, float (&o)[4]) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    float remembered[4] = {}, read[4] = {}, both = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float decay = shared.decay[row_ + i], k = shared.k[row_ + i], q = shared.q[row_ + i];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s_[i][c] *= decay;
        remembered[c] += s_[i][c] * k;
        read[c] += s_[i][c] * q;
      }
    }
    shared.remembered[warp][lane] = {remembered[0], remembered[1], remembered[2], remembered[3]};
    shared.read[warp][lane] = {read[0], read[1], read[2], read[3]};
    for (int d = lane; d < kKdaWarps * kRows; d += kWarp) both += shared.k[d] * shared.q[d];
    both = warp_sum(both);
    __syncthreads();
    float4 all = {}, out = {};
#pragma unroll
    for (int w = 0; w < kKdaWarps; ++w) {
      const float4 a = shared.remembered[w][lane], b = shared.read[w][lane];
      all.x += a.x, all.y += a.y, all.z += a.z, all.w += a.w;
      out.x += b.x, out.y += b.y, out.z += b.z, out.w += b.w;
    }
    const float sums[4] = {all.x, all.y, all.z, all.w}, reads[4] = {out.x, out.y, out.z, out.w};
    float u[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      u[c] = beta * ((exists(c) ? v[column_ + c] : 0) - sums[c]);
      o[c] = reads[c] + both * u[c];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = shared.k[row_ + i];
#pragma unroll
      for (int c = 0; c < 4; ++c) s_[i][c] += k * u[c];
    }
  }

  // Values of the columns of this lane into a row of all columns; one warp does it.
  __device__ void put(const float (&values)[4], float* row) const {
    if (threadIdx.x >= kWarp) return;
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (exists(c)) row[column_ + c] = values[c];
  }
  __device__ int first_column() const { return column_; }
  // Whether column c of this lane is one. No comparison with a minimum: ptxas 13.0 gets those wrong here.
  __device__ bool exists(int c) const { return column_ + c < v_dim_; }

 private:
  const int k_dim_, v_dim_, row_, column_;
  const int64_t head_;
  float s_[kRows][4];
};

}  // namespace dsa
