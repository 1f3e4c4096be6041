// backend/cuda/cuda_errors.h: what an error of the CUDA run time means for us.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"

namespace dsa {

Code cuda_code(cudaError_t error);

// "a kernel failed: an illegal memory access was encountered (700)".
template <class... Parts>
Status cuda_status(cudaError_t failure, const Parts&... parts) {
  const Code code = cuda_code(failure);
  Status status = error(code, parts..., ": ", cudaGetErrorString(failure), " (", int(failure), ")");
  return std::move(status).with_native(failure).with_fix(code == Code::out_of_device_memory ? Fix::free_memory
                                                         : code == Code::driver      ? Fix::update_driver
                                                         : code == Code::device_lost ? Fix::resume
                                                                                     : Fix::report);
}

}  // namespace dsa
