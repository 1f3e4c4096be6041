#include "kernels/common/cuda_queue.h"

#include <type_traits>
#include <utility>

#include "base/status.h"

namespace dsa {

cudaError_t read_cuda_device(int ordinal, CudaDevice& device) {
  const auto read = [&](cudaDeviceAttr attribute, auto& value) {
    int found = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&found, attribute, ordinal);
    if (error == cudaSuccess) value = static_cast<std::remove_reference_t<decltype(value)>>(found);
    return error;
  };
  CudaDevice found{ordinal};
  int major = 0, minor = 0;
  for (const cudaError_t error :
       {read(cudaDevAttrComputeCapabilityMajor, major), read(cudaDevAttrComputeCapabilityMinor, minor),
        read(cudaDevAttrMultiProcessorCount, found.multiprocessors),
        read(cudaDevAttrMaxSharedMemoryPerBlockOptin, found.shared_bytes_max),
        read(cudaDevAttrL2CacheSize, found.l2_bytes)})
    if (error != cudaSuccess) return error;
  found.capability = 10 * major + minor;
  device = found;
  return cudaSuccess;
}

CudaQueue::CudaQueue(const CudaDevice& device, cudaStream_t stream, void* scratch, size_t scratch_bytes,
                     cudaStream_t side)
    : device_(device), stream_(stream), scratch_(scratch), scratch_bytes_(scratch_bytes) {
  if (side == nullptr) return;
  side_.reset(new CudaQueue(*this, side));
  for (cudaEvent_t* event : {&given_, &side_->given_})
    note(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

CudaQueue::CudaQueue(CudaQueue& main, cudaStream_t stream)
    : device_(main.device_), stream_(stream), scratch_(nullptr), scratch_bytes_(0), main_(&main) {}

CudaQueue::~CudaQueue() {
  side_.reset();
  if (given_) cudaEventDestroy(given_);
}

CudaQueue& CudaQueue::side() { return side_ ? *side_ : *this; }

void CudaQueue::follow(CudaQueue& first) {
  if (&first == this) return;
  note(cudaEventRecord(first.given_, first.stream_));
  note(cudaStreamWaitEvent(stream_, first.given_, 0));
  follows_ = true;
}

bool CudaQueue::take_overlap() { return !std::exchange(follows_, false) && device_.capability >= 90; }

cudaError_t CudaQueue::take_error() {
  const cudaError_t error = error_;
  error_ = cudaSuccess;
  return error;
}

int CudaQueue::threads() const { return 1; }

void CudaQueue::run(int64_t, Call, const void*) { DSA_ASSERT(false); }

}  // namespace dsa
