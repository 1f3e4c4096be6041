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

}  // namespace

const KernelTable& cuda_kernels(int) {
  static const auto& table = *new KernelTable(generic_table());  // never destroyed
  return table;
}

}  // namespace dsa
