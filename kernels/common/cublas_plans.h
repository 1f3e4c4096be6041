// kernels/common/cublas_plans.h: products of cuBLASLt. The way to compute one is looked for once per shape.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace dsa {

// y[r, o] = sum over i of  weight[o, i] * x[r, i]     bf16 factors, sums and y f32; the same for each matrix of a batch
struct CublasProduct {
  const void* x;               // [rows, in_dim]
  const void* weight;          // [out_dim, in_dim], or [in_dim, out_dim] if transposed; dense
  float* y;                    // [rows, out_dim]  output
  int64_t x_stride, y_stride;  // elements from row to row
  int rows, in_dim, out_dim;
  bool transposed = false;
  int batch = 1;
  int64_t x_batch_stride = 0, weight_batch_stride = 0, y_batch_stride = 0;  // elements from matrix to matrix
};

class CublasPlans {
 public:
  CublasPlans();
  ~CublasPlans();
  CublasPlans(const CublasPlans&) = delete;
  CublasPlans& operator=(const CublasPlans&) = delete;

  // Null if cuBLASLt could not be set up on this device.
  cublasLtHandle_t handle() const { return handle_; }

  // Looks for a plan that needs no more than `workspace_bytes`. False: there is none.
  bool find(const CublasProduct& product, size_t workspace_bytes);
  // One launch, of a product that find() knows; `add` adds it to y.
  cublasStatus_t run(const CublasProduct& product, bool add, void* workspace, size_t workspace_bytes,
                     cudaStream_t stream);

 private:
  struct Plan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t weight, x, y;
    cublasLtMatmulAlgo_t algorithm;
    bool exists = false;
  };
  Plan& plan(const CublasProduct& product, size_t workspace_bytes);
  bool prepare(const CublasProduct& product, size_t workspace_bytes, Plan& plan) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<std::array<int64_t, 12>, Plan> plans_;  // by shape and alignment
};

}  // namespace dsa
