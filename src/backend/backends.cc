// backend/backends.cc: the backends of this build.
#include "backend/backend.h"

namespace dsa {

const std::vector<BackendKernels>& backends_of_build() {
  static const auto& all = *new std::vector<BackendKernels>{{"cpu", "", cpu_kernel_variants()}};
  return all;
}

}  // namespace dsa
