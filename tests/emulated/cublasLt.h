// tests/emulated/cublasLt.h: as much of cuBLASLt as operators use, in plain loops and f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/numbers.h"

using cublasLtHandle_t = void*;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_16BF };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasLtMatmulDescAttributes_t { CUBLASLT_MATMUL_DESC_TRANSA };
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};

enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
};

struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t of_a;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
  int32_t batch;
  int64_t batch_stride;
};
struct cublasLtMatmulPreferenceOpaque_t {};
struct cublasLtMatmulAlgo_t {};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  cublasStatus_t state;
};

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static char some;
  return *handle = &some, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDescOpaque_t* product, cublasComputeType_t,
                                             cudaDataType_t) {
  return *product = {}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDescOpaque_t* product,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&product->of_a, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type,
                                               uint64_t rows, uint64_t columns, int64_t stride) {
  return *layout = {type, rows, columns, stride, 1, 0}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayoutOpaque_t* layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    memcpy(&layout->batch, value, bytes);
  else
    memcpy(&layout->batch_stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreferenceOpaque_t*) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreferenceOpaque_t*,
                                                           cublasLtMatmulPreferenceAttributes_t, const void*,
                                                           size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDescOpaque_t*, cublasLtMatrixLayoutOpaque_t*,
    cublasLtMatrixLayoutOpaque_t*, cublasLtMatrixLayoutOpaque_t*, cublasLtMatrixLayoutOpaque_t*,
    cublasLtMatmulPreferenceOpaque_t*, int, cublasLtMatmulHeuristicResult_t* found, int* count) {
  *found = {{}, CUBLAS_STATUS_SUCCESS}, *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDescOpaque_t* product, const void*,
                                     const void* a, cublasLtMatrixLayoutOpaque_t* a_layout, const void* b,
                                     cublasLtMatrixLayoutOpaque_t* b_layout, const void* of_c, const void* c,
                                     cublasLtMatrixLayoutOpaque_t*, void* d,
                                     cublasLtMatrixLayoutOpaque_t* d_layout, const cublasLtMatmulAlgo_t*,
                                     void*, size_t, void*) {
  const bool turned = product->of_a == CUBLAS_OP_T;
  const auto inner = int64_t(b_layout->rows), outputs = int64_t(d_layout->rows),
             rows = int64_t(d_layout->columns);
  const auto value = [](const void* data, const cublasLtMatrixLayoutOpaque_t& layout, int64_t batch,
                        int64_t row, int64_t column) {
    const int64_t at = batch * layout.batch_stride + column * layout.stride + row;
    return double(dsa::to_f32(static_cast<const dsa::bf16*>(data)[at]));
  };
  for (int64_t n = 0; n < d_layout->batch; ++n)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < inner; ++i) {
          sum += (turned ? value(a, *a_layout, n, i, o) : value(a, *a_layout, n, o, i)) *
                 value(b, *b_layout, n, i, r);
        }
        const int64_t at = n * d_layout->batch_stride + r * d_layout->stride + o;
        const float factor = *static_cast<const float*>(of_c);  // 0: c is not read
        if (factor != 0) sum += double(factor) * static_cast<const float*>(c)[at];
        static_cast<float*>(d)[at] = float(sum);
      }
  return CUBLAS_STATUS_SUCCESS;
}
