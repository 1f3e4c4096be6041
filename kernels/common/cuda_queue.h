// kernels/common/cuda_queue.h: a stream of a GPU, with what operators need to know about the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/common/cublas_plans.h"
#include "kernels/common/queue.h"

namespace dsa {

struct CudaDevice {
  int ordinal = 0;
  int capability = 0;  // 10 * major + minor
  int multiprocessors = 0;
  size_t shared_bytes_max = 0;  // that one block may have
  size_t l2_bytes = 0;
};
// On failure `device` is unchanged.
cudaError_t read_cuda_device(int ordinal, CudaDevice& device);

// Room for every operator at full speed. With less they cut their work into smaller pieces; below kCudaScratchBytesMin
// some cannot work at all.
constexpr size_t kCudaScratchBytes = size_t{192} << 20;
constexpr size_t kCudaScratchBytesMin = size_t{16} << 20;

// Launches are asynchronous. The first error of a launch is kept until somebody takes it; operators cannot fail.
class CudaQueue final : public Queue {
 public:
  // Owns neither the streams nor the scratch memory, which no other queue may use at the same time. `device` is the
  // current device of every thread that uses the queue. `side` is the stream of side(); null: there is none.
  CudaQueue(const CudaDevice& device, cudaStream_t stream, void* scratch, size_t scratch_bytes,
            cudaStream_t side = nullptr);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  const CudaDevice& device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  // Free for the operator that runs, from its first launch to its last. 256-byte aligned.
  void* scratch() const { return scratch_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  // Without a handle if cuBLASLt could not be set up on this device: its products then run in kernels of our own.
  CublasPlans& cublas_plans() { return cublas_plans_; }
  cublasLtHandle_t cublas() const { return cublas_plans_.handle(); }

  void note(cudaError_t error) {
    cudaError_t& first = main_ ? main_->error_ : error_;
    if (first == cudaSuccess) first = error;
  }
  // The first error since the last call, and forgets it. Errors of running kernels come with cudaStreamSynchronize.
  cudaError_t take_error();

  int threads() const override;  // 1
  // A queue whose work may run beside that of this one; this one if it has no other.
  CudaQueue& side();
  // What is put here from now on waits for all that `first` has been given.
  void follow(CudaQueue& first);
  // True if the next kernel may start while the one before it still runs: not the first one behind another queue, which
  // that does not wait for.
  bool take_overlap();

 protected:
  // Kernels of the CPU have no business here: their pointers would be those of the device.
  void run(int64_t n, Call call, const void* context) override;

 private:
  CudaQueue(CudaQueue& main, cudaStream_t stream);  // its side

  CudaDevice device_;
  cudaStream_t stream_;
  void* scratch_;
  size_t scratch_bytes_;
  CublasPlans cublas_plans_;
  cudaError_t error_ = cudaSuccess;
  cudaEvent_t given_ = nullptr;  // where another queue follows
  bool follows_ = false;         // and no kernel has been started since
  CudaQueue* main_ = nullptr;
  std::unique_ptr<CudaQueue> side_;
};

}  // namespace dsa
