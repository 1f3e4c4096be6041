// backend/cuda/cuda_module.h: what libdsa_sdk_cuda.so gives to the library that loads it. Both are of one build.
#pragma once

#include "backend/device.h"

namespace dsa {

struct CudaModule {
  const char* build;  // cuda_module_build() of the module
  std::vector<DeviceInfo> (*list)();
  Result<std::unique_ptr<Backend>> (*create)(const std::string& id);
};

// The one symbol of the module.
using CudaModuleEntry = const CudaModule* (*)();
constexpr const char* kCudaModuleEntry = "dsa_cuda_module";
constexpr const char* kCudaModuleFile = "libdsa_sdk_cuda.so";

// Says whether two builds fit together.
#define DSA_STRINGIZE_2(x) #x
#define DSA_STRINGIZE(x) DSA_STRINGIZE_2(x)
inline const char* cuda_module_build() { return DSA_STRINGIZE(DSA_PROJECT_VERSION) " " __VERSION__; }

}  // namespace dsa
