// kernels/common/rounded.cuh: what products that cut many rows into pieces of bf16 for cuBLASLt share.
#pragma once

#include "kernels/common/products.cuh"

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

// to [piece][rows, blocks, dim], from rows of blocks: x[r * row_stride + block * block_stride + i]. One thread cuts 8
// values; dim is a multiple of 8, the strides are multiples of 4, and both ends lie at multiples of 16 bytes.
template <int kPieces>
void cut_rows(Queue& queue, const float* x, int64_t row_stride, int64_t block_stride, int64_t rows,
              int64_t blocks, int64_t dim, uint4* to) {
  const int64_t octets = dim / 8, all = rows * blocks * octets;
  each(queue, all, [=] __device__(int64_t i) {
    const int64_t block = i / octets;
    const auto* at = reinterpret_cast<const float4*>(x + block / blocks * row_stride +
                                                     block % blocks * block_stride + i % octets * 8);
    const float4 low = at[0], high = at[1];
    uint32_t pairs[4][kPieces];
    cut(low.x, low.y, pairs[0]), cut(low.z, low.w, pairs[1]);
    cut(high.x, high.y, pairs[2]), cut(high.z, high.w, pairs[3]);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      to[piece * all + i] = {pairs[0][piece], pairs[1][piece], pairs[2][piece], pairs[3][piece]};
  });
}

inline void cut_rows(int pieces, Queue& queue, const float* x, int64_t row_stride, int64_t block_stride,
                     int64_t rows, int64_t blocks, int64_t dim, uint4* to) {
  (pieces == 2 ? cut_rows<2> : cut_rows<1>)(queue, x, row_stride, block_stride, rows, blocks, dim, to);
}

// Launches a product that cublas_plans() has found, once for each piece of x; they lie `piece_bytes` apart.
inline void run_cublas(CudaQueue& queue, CublasProduct product, int pieces, int64_t piece_bytes,
                       void* workspace, size_t workspace_bytes) {
  for (int piece = 0; piece < pieces; ++piece) {
    if (queue.cublas_plans().run(product, piece > 0, workspace, workspace_bytes, queue.stream()) !=
        CUBLAS_STATUS_SUCCESS)
      queue.note(cudaErrorLaunchFailure);
    product.x = static_cast<const char*>(product.x) + piece_bytes;
  }
}

}  // namespace dsa
