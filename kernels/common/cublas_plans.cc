#include "kernels/common/cublas_plans.h"

namespace dsa {
namespace {

constexpr size_t kPlansMax = 1024;  // shapes; beyond that all are forgotten

// The largest power of two up to 256 that divides the address.
uint32_t alignment(const void* pointer) {
  const auto address = uintptr_t(pointer) | 256;
  return uint32_t(address & (~address + 1));
}

}  // namespace

CublasPlans::CublasPlans() {
  if (cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS) handle_ = nullptr;
}

CublasPlans::~CublasPlans() {
  if (handle_) cublasLtDestroy(handle_);
}

// cuBLASLt sees columns: y^T [out_dim, rows] = weight [out_dim, in_dim] times x^T [in_dim, rows].
bool CublasPlans::prepare(const CublasProduct& p, size_t workspace_bytes, Plan& plan) const {
  const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return good(cublasLtMatmulDescSetAttribute(&plan.product, attribute, &value, sizeof value));
  };
  if (!good(cublasLtMatmulDescInit(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
      !set(CUBLASLT_MATMUL_DESC_TRANSA, p.transposed ? CUBLAS_OP_N : CUBLAS_OP_T))
    return false;
  const auto type = CUDA_R_16BF;
  const auto in = uint64_t(p.in_dim), out = uint64_t(p.out_dim), rows = uint64_t(p.rows);
  const auto lay = [&](cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t of, uint64_t height,
                       uint64_t width, int64_t stride, int64_t batch_stride) {
    if (!good(cublasLtMatrixLayoutInit(&layout, of, height, width, stride))) return false;
    const int32_t batch = p.batch;
    return batch == 1 ||
           (good(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                  sizeof batch)) &&
            good(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &batch_stride, sizeof batch_stride)));
  };
  if (!(p.transposed ? lay(plan.weight, type, out, in, p.out_dim, p.weight_batch_stride)
                     : lay(plan.weight, type, in, out, p.in_dim, p.weight_batch_stride)) ||
      !lay(plan.x, type, in, rows, p.x_stride, p.x_batch_stride) ||
      !lay(plan.y, CUDA_R_32F, out, rows, p.y_stride, p.y_batch_stride))
    return false;

  cublasLtMatmulPreferenceOpaque_t preference;
  if (!good(cublasLtMatmulPreferenceInit(&preference))) return false;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return good(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  if (!prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes)) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.weight)) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.x)) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.y)) ||
      !prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.y)))
    return false;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  if (!good(cublasLtMatmulAlgoGetHeuristic(handle_, &plan.product, &plan.weight, &plan.x, &plan.y, &plan.y,
                                           &preference, 1, &found, &count)) ||
      count == 0 || !good(found.state))
    return false;
  plan.algorithm = found.algo;
  return true;
}

CublasPlans::Plan& CublasPlans::plan(const CublasProduct& p, size_t workspace_bytes) {
  const int64_t alignments =
      int64_t(alignment(p.weight)) << 40 | int64_t(alignment(p.x)) << 20 | alignment(p.y);
  const std::array<int64_t, 12> key = {p.rows,           p.in_dim,         p.out_dim,
                                       p.x_stride,       p.y_stride,       p.transposed,
                                       p.batch,          p.x_batch_stride, p.weight_batch_stride,
                                       p.y_batch_stride, alignments,       int64_t(workspace_bytes)};
  const auto known = plans_.find(key);
  if (known != plans_.end()) return known->second;
  if (plans_.size() >= kPlansMax) plans_.clear();
  Plan& fresh = plans_[key];
  fresh.exists = prepare(p, workspace_bytes, fresh);
  return fresh;
}

bool CublasPlans::find(const CublasProduct& p, size_t workspace_bytes) {
  return handle_ && plan(p, workspace_bytes).exists;
}

cublasStatus_t CublasPlans::run(const CublasProduct& p, bool add, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
  Plan& made = plan(p, workspace_bytes);
  const float one = 1, of_y = add ? 1.f : 0.f;
  return cublasLtMatmul(handle_, &made.product, &one, p.weight, &made.weight, p.x, &made.x, &of_y, p.y,
                        &made.y, p.y, &made.y, &made.algorithm, workspace, workspace_bytes, stream);
}

}  // namespace dsa
