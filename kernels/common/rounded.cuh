// kernels/common/rounded.cuh: what products that round many rows for cuBLASLt share.
#pragma once

#include "kernels/common/cuda.cuh"

namespace dsa {

constexpr size_t kCublasBytes = size_t{32} << 20;  // of its workspace, at most
inline size_t cublas_workspace_bytes(const CudaQueue& queue) {
  const size_t quarter = queue.scratch_bytes() / 4 / 256 * 256;
  return quarter < kCublasBytes ? quarter : kCublasBytes;
}

inline int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }

// Parts of the scratch memory of a queue, one after the other, 256-byte aligned.
class Scratch {
 public:
  explicit Scratch(const CudaQueue& queue)
      : begin_(static_cast<char*>(queue.scratch())), left_(int64_t(queue.scratch_bytes())) {}
  template <class T>
  T* take(int64_t count) {
    const int64_t bytes = round_up(count * int64_t(sizeof(T)), 256);
    T* part = reinterpret_cast<T*>(begin_);
    begin_ += bytes, left_ -= bytes;
    return part;
  }
  int64_t left() const { return left_; }  // bytes

 private:
  char* begin_;
  int64_t left_;
};

__device__ inline uint4 round_to_bf16x8(const float4& low, const float4& high) {
  return {round_to_bf16x2(low.x, low.y), round_to_bf16x2(low.z, low.w), round_to_bf16x2(high.x, high.y),
          round_to_bf16x2(high.z, high.w)};
}

// to [rows, blocks, dim], from rows of blocks: x[r * row_stride + block * block_stride + i]. One thread rounds 8 values;
// dim is a multiple of 8, the strides are multiples of 4, and both ends lie at multiples of 16 bytes.
inline void round_rows_to_bf16(Queue& queue, const float* x, int64_t row_stride, int64_t block_stride,
                               int64_t rows, int64_t blocks, int64_t dim, uint4* to) {
  const int64_t octets = dim / 8;
  each(queue, rows * blocks * octets, [=] __device__(int64_t i) {
    const int64_t block = i / octets;
    const auto* at = reinterpret_cast<const float4*>(x + block / blocks * row_stride +
                                                     block % blocks * block_stride + i % octets * 8);
    to[i] = round_to_bf16x8(at[0], at[1]);
  });
}

// Launches a product that cublas_plans() has found.
inline void run_cublas(CudaQueue& queue, const CublasProduct& product, void* workspace,
                       size_t workspace_bytes) {
  if (queue.cublas_plans().run(product, workspace, workspace_bytes, queue.stream()) != CUBLAS_STATUS_SUCCESS)
    queue.note(cudaErrorLaunchFailure);
}

}  // namespace dsa
