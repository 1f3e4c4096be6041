// backend/backends.cc: the backends of this build.
#include "backend/device.h"

namespace dsa {

std::vector<BackendKernels> backends_with(const std::vector<DeviceInfo>& gpus) {
  std::vector<BackendKernels> all{{"cpu", "", cpu_kernel_variants()}};
  const DeviceInfo* chosen = nullptr;  // the first usable one, else the last
  for (const DeviceInfo& gpu : gpus)
    if (chosen == nullptr || !chosen->why_not.is_ok()) chosen = &gpu;
  if (chosen != nullptr) all.push_back({"cuda", chosen->why_not.message(), chosen->kernels});
  return all;
}

const std::vector<BackendKernels>& backends_of_build() {
  static const auto& all = *new std::vector<BackendKernels>(backends_with(list_gpus("")));
  return all;
}

}  // namespace dsa
