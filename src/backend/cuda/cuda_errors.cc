#include "backend/cuda/cuda_errors.h"

namespace dsa {

Code cuda_code(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return Code::ok;
    case cudaErrorMemoryAllocation: return Code::out_of_device_memory;
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return Code::driver;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice: return Code::no_device;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound: return Code::backend;
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorContextIsDestroyed:
    case cudaErrorSystemNotReady:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorCudartUnloading: return Code::device_lost;
    default: return Code::device_fault;
  }
}

}  // namespace dsa
