#include "kernels/cuda_kernels.h"

namespace dsa {
namespace {

KernelTable generic_table() {
  KernelTable table;
#define DSA_SET_KERNEL(name, Args) table.name = cuda::name;
  DSA_FOR_EACH_KERNEL(DSA_SET_KERNEL)
#undef DSA_SET_KERNEL
  return table;
}

// With what this build has for GPUs of this capability alone.
KernelTable sm90_table() {
  KernelTable table = generic_table();
#if defined(DSA_CUDA_SM90)
  table.fp8_expert_linear = sm90::fp8_expert_linear;
  table.index_scores = sm90::index_scores;
  table.mxfp4_expert_linear = sm90::mxfp4_expert_linear;
  table.sparse_attention = sm90::sparse_attention;
  table.top_k = sm90::top_k;
#endif
  return table;
}

}  // namespace

const KernelTable& cuda_kernels(int capability) {
  static const auto &generic = *new KernelTable(generic_table()), &sm90 = *new KernelTable(sm90_table());
  return capability == 90 ? sm90 : generic;  // neither is ever destroyed
}

}  // namespace dsa
